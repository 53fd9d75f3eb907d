"""The runner ``process``: trainers as processes of the worker's machine."""
