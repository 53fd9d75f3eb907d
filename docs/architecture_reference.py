"""Write the diagram of layers and the tables of packages into docs/explanation/architecture.md.

They come from import-linter's contract in pyproject.toml and from the packages' docstrings. ``--check`` only
reports whether the page is up to date.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dmls_core"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"

NO_LAYER = {"testing"}
"""The suites, which only tests import."""


def page() -> str:
    """Return the page with its generated parts.

    Raises:
        SystemExit: a package is in no layer, or a layer names a package that does not exist.
    """
    layers = read_layers()
    present = {
        path.stem for path in PACKAGE.iterdir() if (path / "__init__.py").is_file() or path.suffix == ".py"
    }
    present -= {"__init__"} | NO_LAYER
    named = {name for layer in layers for name in layer}
    if present != named:
        sys.exit(
            f"not in the layers of pyproject.toml, or not in dmls_core: {', '.join(sorted(present ^ named))}"
        )
    text = PAGE.read_text()
    text = _insert(text, "layers", diagram(layers))
    text = _insert(text, "packages", _table([(name, PACKAGE / name) for layer in layers for name in layer]))
    modules = sorted((PACKAGE / "airflow").iterdir())
    return _insert(
        text, "airflow", _table([(path.stem, path.with_suffix("")) for path in modules if _is_module(path)])
    )


def read_layers() -> list[list[str]]:
    """Return the packages of each layer, from the top down."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers" and "containers" not in c)
    return [re.findall(r"dmls_core\.(\w+)", layer) for layer in layers]


def diagram(layers: list[list[str]]) -> str:
    """Return the layers as a picture of text."""
    rows = ["   ".join(layer) for layer in layers]
    width = max(map(len, rows)) + 2
    line = "─" * width
    boxes = f"\n├{line}┤\n".join(f"│{row.center(width)}│" for row in rows)
    return f"```text\n┌{line}┐\n{boxes}\n└{line}┘\n```"


def _is_module(path: Path) -> bool:
    return (path / "__init__.py").is_file() or (path.suffix == ".py" and path.stem != "__init__")


def _table(modules: list[tuple[str, Path]]) -> str:
    rows = [f"| `{name}` | {_summary(path)} |" for name, path in modules]
    return "\n".join(["| module | holds |", "| --- | --- |", *rows])


def _summary(path: Path) -> str:
    """Return the first sentence of a module's docstring."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    summary = re.split(r"(?<=\.)\s|\n\n", docstring)[0]
    return " ".join(summary.split()).replace("``", "`")


def _insert(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}: written by docs/architecture_reference.py -->", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n\n{content}\n\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    new = page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == new else f"{PAGE} is out of date: run `make docs`")
    PAGE.write_text(new)
