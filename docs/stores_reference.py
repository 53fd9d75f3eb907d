"""Write the example into docs/extending/stores.md. ``--check`` only reports whether the page is up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parent / "extending" / "stores.md"
EXAMPLE = Path(__file__).parents[1] / "examples" / "plugins" / "dmls-fsspec-store"


def page() -> str:
    """Return the page with the current files of the example in its code blocks."""
    text = PAGE.read_text()
    for name in ("pyproject.toml", "dmls_fsspec_store.py", "test_dmls_fsspec_store.py"):
        text = _insert(text, name)
    return text


def _insert(text: str, name: str) -> str:
    code = (EXAMPLE / name).read_text()
    pattern = rf'(```\w+ title="{re.escape(name)}"\n).*?(^```$)'
    return re.sub(pattern, lambda match: match[1] + code + match[2], text, flags=re.DOTALL | re.MULTILINE)


if __name__ == "__main__":
    new = page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == new else f"{PAGE} is out of date: run `make docs`")
    PAGE.write_text(new)
