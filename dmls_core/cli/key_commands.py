"""``dmls keys``: create, list and revoke API keys for predictions, by the REST API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dmls_core.cli.console import JsonOption, literal, out, print_json, say
from dmls_core.devstack.airflow_client import AirflowClient
from dmls_core.html.formats import ago
from dmls_core.settings import load_settings

keys = typer.Typer(name="keys", help="Manage the API keys that clients use to predict.", no_args_is_help=True)

_API = "/dmls/api/v1"

ScopeArgument = Annotated[
    str, typer.Argument(metavar="TEAM[/JOB]", help="What the key opens: a job, or all jobs of a team.")
]


@keys.command("create")
def create_key(
    scope: ScopeArgument,
    name: Annotated[str, typer.Option(help="Who or what uses the key.")],
    days: Annotated[
        int | None, typer.Option(min=1, help="Days until it expires. Default: it does not expire.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. It is not stored, and cannot be printed again."""
    api_key = _call("POST", scope, body={"name": name, "days": days})
    if as_json:
        print_json({"schema": 1, **api_key})
        return
    say(f"key {api_key['id']} opens {_opens(api_key)}; keep it now, it cannot be printed again")
    out.print(api_key["key"], markup=False)


@keys.command("list")
def list_keys(scope: ScopeArgument, as_json: JsonOption = False) -> None:
    """List the keys that open a job, or all keys of a team and of its jobs."""
    answer = _call("GET", scope)
    if as_json:
        print_json({"schema": 1, "keys": answer})
        return
    if not answer:
        out.print(f"no keys yet: dmls keys create {literal(scope)} --name NAME")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("ID", "NAME", "OPENS", "CREATED", "BY", "EXPIRES"):
        table.add_column(heading, overflow="fold")
    for key in answer:
        expires = key["expires"][:10] if key["expires"] else "never"
        cells = key["id"], key["name"], _opens(key), ago(key["created"]), key["created_by"], expires
        table.add_row(*map(literal, cells))
    out.print(table, soft_wrap=False)


@keys.command("revoke")
def revoke_key(
    scope: ScopeArgument, key_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` prints it.")]
) -> None:
    """Revoke a key. Within 10 seconds, no request is accepted with it."""
    gone = _call("DELETE", scope, f"/{key_id}")
    out.print(f"revoked: {literal(gone['name'])} ({gone['id']})")


def _call(method: str, scope: str, path: str = "", body: object = None) -> Any:  # noqa: ANN401 - JSON
    settings = load_settings()
    airflow = AirflowClient(
        settings.require("airflow_url"),
        settings.require("airflow_username"),
        settings.require("airflow_password"),
    )
    owner = f"jobs/{scope}" if "/" in scope else f"teams/{scope}"
    return airflow.call(method, f"{_API}/{owner}/keys{path}", body)


def _opens(key: dict[str, Any]) -> str:
    return f"{key['team']}/{key['job']}" if key["job"] else f"all jobs of {key['team']}"
