"""Write docs/reference/settings.md from the classes in ``dmls_core.settings``.

``--check`` only reports whether the page is up to date.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from dmls_core.settings import GROUPS, Variables

PAGE = Path(__file__).parent / "reference" / "settings.md"

HEAD = """# Settings

<!-- Written by docs/settings_reference.py from dmls_core/settings.py: change that, then run `make docs`. -->

DMLS reads the environment variables on this page. Inside Airflow, the keyword arguments of the bundle entry
replace the addresses; limits are variables of Airflow's processes as well. An empty variable counts as not set.
A limit is a positive integer; underscores may separate its digits (`1_000`), as in TOML. Anything else is an error
that names the variable.

Client libraries read their own variables, such as `AWS_ACCESS_KEY_ID` and `AWS_ENDPOINT_URL`. `OMP_NUM_THREADS`
limits the threads of `dmls train` and `dmls plan`.
"""

BUNDLE_ENTRY = """## Bundle entry

These are the `kwargs` of the entry with the classpath `dmls_core.airflow.bundle.DmlsBundle` in
`[dag_processor] dag_bundle_config_list`. Arguments of Airflow's own bundles are allowed too: `refresh_interval` is
the number of seconds between two reads of the registry.
"""

TEXTS = {
    "Settings": "The command line reads these. Without a variable it uses the embedded platform of the working "
    "directory, if there is one.",
    "SpecLimits": "Limits protect against input that would exhaust a service, and against typing errors that "
    "would be expensive.",
}


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, _bundle_entry(), *map(_section, GROUPS)]).rstrip() + "\n"


def _bundle_entry() -> str:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("AIRFLOW_HOME", folder)  # importing Airflow writes there
        from dmls_core.airflow.settings import AirflowSettings
    lines = [BUNDLE_ENTRY, "| key | default | meaning |", "| --- | --- | --- |"]
    for name, field in AirflowSettings.model_fields.items():
        default = "required" if field.is_required() else f"`{field.default}`" if field.default != "" else ""
        lines.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def _section(group: type[Variables]) -> str:
    title = (group.__doc__ or "").strip().rstrip(".")
    names = group.variables()
    lines = [
        f"## {title.replace('`', '')}",
        "",
        *([TEXTS[group.__name__], ""] if group.__name__ in TEXTS else []),
    ]
    lines += ["| variable | default | meaning |", "| --- | --- | --- |"]
    lines += [
        f"| `{names[one.name]}` | {_default(one.default)} | {one.metadata['description']} |"
        for one in fields(group)
    ]
    return "\n".join(lines) + "\n"


def _default(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv:
        sys.exit(
            0 if PAGE.exists() and PAGE.read_text() == text else f"{PAGE} is out of date: run `make docs`"
        )
    PAGE.write_text(text)
