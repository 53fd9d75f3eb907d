"""``python -m dmls_core.sandbox SETTINGS [PROGRAM ...]``: the child process of the sandbox."""

from __future__ import annotations

import sys

from dmls_core.sandbox.child import main

if __name__ == "__main__":
    main(sys.argv[1:])
