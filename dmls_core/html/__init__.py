"""The HTML and the charts that DMLS writes: for reports, model cards, monitor pages and the web app.

Pages written by ``render_page`` are single files: styles and scripts are inside them, and a content security
policy blocks everything else. All values are escaped. Jinja2 is imported when the first page is rendered.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_core.html.formats import Matrix, TableData
from dmls_core.visible_text import visible_lines

if TYPE_CHECKING:
    from jinja2 import Environment


__all__ = [
    "STATIC",
    "Matrix",
    "TableData",
    "chart_scripts",
    "create_environment",
    "render_fragment",
    "render_page",
]

_TEMPLATES = Path(__file__).parent / "templates"

STATIC = Path(__file__).parent / "static"
"""Scripts that draw charts; a report has them inlined, and the web app serves them."""


def create_environment(*folders: Path) -> Environment:
    """Return a Jinja2 environment that shows all values literally and rejects undefined ones.

    A value has escapes for what HTML or a browser would obey; the filter ``e`` leaves the second kind out.

    ``folders`` are searched for templates before the folder of this package.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from dmls_core.html import formats

    environment = Environment(
        loader=FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The order of names is that of the data. A number that JSON lacks is an error.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters |= {
        "brief": formats.brief,
        "cell": formats.cell,
        "setting": formats.setting,
        "ensemble": formats.describe_ensemble,
        "refit": formats.describe_refit,
        "sentence": formats.sentence,
        "shorten": formats.shorten,
        "write_number": formats.number,
    }
    return environment


def _finalize(value: object) -> object:
    from markupsafe import Markup

    return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    return create_environment()


def render_page(template: str, title: str, *, scripts: Sequence[str] = (), **values: object) -> str:
    """Render a self-contained HTML page from a template that extends ``base.html``.

    The title is also the heading unless the template replaces it. ``scripts`` is trusted JavaScript to run at
    the end of the page; the policy allows these scripts only. ``values`` are the variables of the template.
    """
    from markupsafe import Markup

    # A browser hashes a script after it has normalized line ends.
    trusted = [Markup(script.replace("\r\n", "\n").replace("\r", "\n")) for script in scripts]  # noqa: S704
    policy = Markup(_policy(trusted))  # noqa: S704
    page = _environment().get_template(template)
    return page.render(title=title, policy=policy, scripts=trusted, **values) + "\n"


def render_fragment(template: str, **values: object) -> str:
    """Render a template that is part of a page."""
    return _environment().get_template(template).render(**values)


@cache
def chart_scripts() -> tuple[str, ...]:
    """Return the scripts of a page with charts (``chart`` of ``components.html``)."""
    return tuple((STATIC / name).read_text(encoding="utf-8") for name in ("echarts.js", "charts.js"))


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy of a page that runs the given scripts and loads nothing."""
    allowed = ""
    if scripts:
        digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
        hashes = " ".join(f"'sha256-{b64encode(digest).decode()}'" for digest in digests)
        allowed = f"script-src {hashes}; "
    return f"default-src 'none'; {allowed}style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
