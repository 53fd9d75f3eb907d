"""The data of a run: columns with their roles, read from files and encoded for a model."""
