"""Operators that start the trainer: in a container (``docker``) or as a process (``process``)."""
