"""Predict with a served model: clients, files, cards and exports."""
