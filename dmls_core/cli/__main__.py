"""``python -m dmls_core.cli`` is the ``dmls`` command."""

from __future__ import annotations

from dmls_core.cli.main import main

main()
