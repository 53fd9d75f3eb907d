"""Write the examples into the pages of docs/extending. ``--check`` only reports whether they are up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGES = Path(__file__).parent / "extending"
PLUGINS = Path(__file__).parents[1] / "examples" / "plugins"

BLOCK = re.compile(r'(```\w+ title="([^"/]+)/([^"]+)"\n).*?(^```$)', re.DOTALL | re.MULTILINE)
"""A code block whose title is the path of a file below examples/plugins."""


def page(path: Path) -> str:
    """Return the page with the current files of the examples in its code blocks."""
    return BLOCK.sub(
        lambda match: match[1] + (PLUGINS / match[2] / match[3]).read_text() + match[4], path.read_text()
    )


if __name__ == "__main__":
    old = {path: path.read_text() for path in sorted(PAGES.glob("*.md"))}
    new = {path: page(path) for path in old}
    if "--check" in sys.argv:
        stale = [path.name for path in old if old[path] != new[path]]
        sys.exit(f"out of date: {', '.join(stale)}: run `make docs`" if stale else 0)
    for path, text in new.items():
        path.write_text(text)
