"""The ``dmls`` command: one module per group of commands, heavy imports inside the commands."""

from importlib.util import find_spec

if find_spec("typer") is None:
    raise SystemExit("the command line needs more packages: pip install 'dmls[cli]'")
