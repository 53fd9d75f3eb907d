"""Triton servers: clients, configuration, loading, and placement of models."""
