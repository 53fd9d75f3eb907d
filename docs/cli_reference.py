"""Write docs/reference/cli.md from the commands in ``dmls_core.cli.main``, with Typer's own generator.

``--check`` only reports whether the page is up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

from dmls_core.cli.main import app

PAGE = Path(__file__).parent / "reference" / "cli.md"

HEAD = """# Command line

<!-- Written by docs/cli_reference.py from dmls_core/cli: change that, then run `make docs`. -->

`dmls --help` and `dmls COMMAND --help` print the same texts. Answers go to stdout, progress and errors to stderr.

| exit code | meaning |
| --- | --- |
| 0 | success |
| 1 | the spec, the data or another input is wrong, or `dmls drift` found drift |
| 2 | wrong usage of the command |
| 3 | the platform failed: a service does not answer, or the machine lacks something |

With `--json`, a command prints one JSON object on stdout. `DMLS_DEBUG=1` prints stack traces.
The [settings](settings.md) are environment variables.
"""


def page() -> str:
    """Return the whole page."""
    group: Any = get_command(app)  # Typer has its own copy of click
    context = Context(group, info_name="dmls", help_option_names=["-h", "--help"])
    text = get_docs_for_click(obj=group, ctx=context, name="dmls")
    body = text.partition("**Usage**")[2].replace("\\[", "[")
    for name, command in group.commands.items():  # the generator shortens these lines
        body = re.sub(rf"(?m)^(\* `{name}`: ).*$", rf"\1{_summary(command)}", body, count=1)
    lines = [line.rstrip() for line in f"## dmls\n\n**Usage**{body}".splitlines()]
    return HEAD + "\n" + "\n".join(lines).rstrip() + "\n"


def _summary(command: Any) -> str:  # noqa: ANN401 - as above
    return " ".join((command.help or "").split("\n\n")[0].split())


def main() -> None:
    """Write or check the page."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PAGE} is out of date: run python docs/cli_reference.py")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
