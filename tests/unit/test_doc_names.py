"""What the pages name in backticks exists: modules, files, commands, options, settings, metrics, routes."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from airflow.sdk.configuration import conf
from typer.main import get_command

from dmls_core.cli.main import app
from dmls_core.spec.tables import TABLES
from tests.support import shell
from tests.support.pages import GENERATED, PAGES, ROOT, spans
from tests.support.prometheus_names import dmls_metrics, unknown_metrics

HISTORY = re.compile(r"^\*\*Status\.\*\* Superseded", re.MULTILINE)
"""What a superseded decision names may be gone."""
BY_HAND = [
    *(page for page in PAGES if not (GENERATED.search(text := page.read_text()) or HISTORY.search(text))),
    ROOT / "CHANGELOG.md",
]

ELSEWHERE = {
    # Docker, Airflow, Triton and nginx
    *("--build-arg", "--gpus", "--ipc", "--no-run-on-latest-version", "--rate-limit"),
    *("limit_conn", "limit_req", "ssl_key", "[fab] cache_ttl"),
    # LightGBM, Polars, scikit-learn, Google Cloud Storage
    *("extra_trees", "if_generation_match", "oob_score_", "scan_delta"),
    # Airflow and MLflow
    *("/auth/token", "/api/v2/backfills", "/api/2.0/mlflow/users/create"),
    # Examples of names that users choose
    *("dmls_jsonl_audit", "dmls_jsonl_default", "species_id"),
}
"""Names of other programs, and examples."""


@cache
def files() -> tuple[str, ...]:
    """Return the files of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(file for file in listed.splitlines() if (ROOT / file).is_file())


@cache
def source() -> str:
    """Return what the programs and configurations of the repository say."""
    suffixes = (".py", ".yaml", ".toml", ".sh", ".js", ".html", ".json", "Makefile", "Dockerfile")
    return "\n".join(
        (ROOT / file).read_text()
        for file in files()
        if file.endswith(suffixes) and file != "tests/unit/test_doc_names.py"
    )


@cache
def words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", source())) | dmls_metrics() | ELSEWHERE


@cache
def names_of_files() -> frozenset[str]:
    """Return the names of all files and folders."""
    return frozenset(part for file in files() for part in file.split("/"))


@cache
def commands() -> dict[str, Any]:
    """Return the commands of ``dmls`` by name; those of a group by both names."""
    found: dict[str, Any] = {}
    for name, command in get_command(app).commands.items():
        found[name] = command
        found |= {f"{name} {inner}": one for inner, one in getattr(command, "commands", {}).items()}
    return found


def is_module(path: str) -> bool:
    """Return whether a dotted path is a module, or an attribute of one."""
    module, _, attribute = path.rpartition(".")
    try:
        importlib.import_module(path)
    except ModuleNotFoundError:
        return bool(module) and is_module(module) and hasattr(importlib.import_module(module), attribute)
    return True


def is_command(span: str) -> bool:
    """Return whether ``dmls NAME --option`` exists."""
    named = [word for word in span.split()[1:] if not word.startswith("-")]
    command = commands().get(" ".join(named[:1]))
    if named[1:] and hasattr(command, "commands"):
        command = commands().get(" ".join(named[:2]))
    known = {option for param in command.params for option in param.opts} if command else set()
    return options(span) <= known | {"--help", "--version"} and bool(command or not named)


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def is_option(option: str) -> bool:
    return option in ELSEWHERE or bool(re.search(rf"{option}(?![\w-])", source()))


def is_key(table: str, key: str) -> bool:
    """Return whether a spec has a key in a table, or Airflow an option in a section."""
    name, _, inner = table.partition(".")
    if name not in TABLES:
        return name == "tags" or f"[{table}] {key}" in ELSEWHERE or conf.has_option(table, key)
    schema = TABLES[name].model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    return {inner, key} - {""} <= {key for part in parts for key in part.get("properties", ())}


def is_path(path: str) -> bool:
    """Return whether a route exists; three dots stand for the rest of it."""
    beginning = path.removesuffix("...")
    return (
        path in ELSEWHERE
        or shell.is_route(path)
        or (path != beginning and any(route.pattern.startswith(beginning) for route in shell.routes()))
    )


CHECKS: dict[str, Callable[..., bool]] = {
    r"\bdmls_core(?:\.\w+)+": is_module,
    r"^dmls(?: .*)?$": is_command,
    r"(?<![\w-])--[a-z][a-z-]+": is_option,
    r"^make ([a-z-]+)": lambda target: target in shell.make_targets(),
    r"\bDMLS_[A-Z_]+": lambda name: name in shell.dmls_variables(),
    r"^\[([\w.]+)\](?: (\w+))?": lambda table, key: is_key(table, key),
    r"^(?:GET|POST|PUT|DELETE) (?:/dmls)?(?:/api/v1)?(/[\w./<>{}-]+)": is_path,
    r"\bdmls_\w+_total\b": lambda name: not unknown_metrics(name),
    r"^[a-z][a-z0-9]*(?:_[a-z0-9]+)+_?$": lambda word: word in words(),
    r"^[\w.-]+\.(?:json|html|prom|tl|py|yaml|sh)$": lambda name: name in names_of_files() or name in source(),
    r"^([\w.-]+)/$": lambda name: name in names_of_files() or f"{name}/" in source(),
}
"""What a span of a page may name -> whether that exists. A group of the pattern is what is looked up."""


def faults(span: str) -> list[str]:
    """Return what a span names that does not exist."""
    found = shell.missing_paths(span)
    for pattern, exists in CHECKS.items():
        for match in re.finditer(pattern, span):
            if not exists(*(match.groups("") or [match[0]])):
                found.append(match[0])
    return found


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page):
    assert {span: wrong for span in spans(page) if (wrong := faults(span))} == {}


@pytest.mark.parametrize(
    "span",
    [
        "dmls_core.airflow.bundles",
        "dmls_core.client.konnect",
        "dmls submitt",
        "dmls keys lst",
        "dmls drift --outt",
        "--strict-redines",
        "make tests",
        "DMLS_ROTO",
        "[columns] weights",
        "[data.sauce]",
        "[dag_processor] dag_bundle_list",
        "GET /queues",
        "dmls_drift_cheks_total",
        "min_samples_laef",
        "golden.jsn.json",
        "dmls_core/web/pages/",
        "tests/e2e/test_nothing.py",
        "pages_of_old/",
    ],
)
def test_a_name_that_does_not_exist_is_refused(span):
    assert faults(span)
