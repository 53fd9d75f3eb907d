"""The Optuna study of a search, shared by its workers."""
