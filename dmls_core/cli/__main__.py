"""Run the ``dmls`` command: ``python -m dmls_core.cli``."""

from __future__ import annotations

from dmls_core.cli.main import main

main()
