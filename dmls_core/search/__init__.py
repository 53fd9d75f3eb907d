"""Hyperparameter search: one loop over an Optuna study."""
