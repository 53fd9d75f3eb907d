"""What a shell script calls, as far as this repository knows it."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import subprocess
import tomllib
from functools import cache
from typing import Any

from typer._click.exceptions import ClickException
from typer.main import get_command

from dmls_core.cli.main import app
from dmls_core.settings import GROUPS
from tests.support.pages import ROOT

NO_FILE = re.compile(r"does not exist")
"""What a command says of a file that is there on a user's machine only."""

FOLDERS = "dags|dmls_core|docs|examples|images|plugins|requirements|tests"
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./*-]+")


@cache
def compose_variables() -> dict[str, bool]:
    """Return the variables of the compose files, and whether each has a default."""
    text = "".join(path.read_text() for path in ROOT.glob("docker-compose*.yaml"))
    variables: dict[str, bool] = {}
    for name, operator in re.findall(r"\$\{([A-Z_0-9]+)(:?[-?]|\})", text):
        if operator != "}":
            variables[name] = "-" in operator
    return variables


@cache
def dmls_variables() -> frozenset[str]:
    """Return the environment variables that begin with ``DMLS_`` and are read anywhere in the repository."""
    read = {name for group in GROUPS for name in group.variables().values()}
    texts = [ROOT / "Makefile", ROOT / "tests/conftest.py", *ROOT.glob("tests/services/*.py")]
    read |= {name for path in texts for name in re.findall(r"DMLS_[A-Z_]+", path.read_text())}
    return frozenset(read | compose_variables().keys())


@cache
def make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def extras() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return frozenset(project["optional-dependencies"])


@cache
def triton_options() -> frozenset[str]:
    """Return the options with which DMLS starts Triton, and those of its restriction."""
    texts = [*ROOT.glob("docker-compose*.yaml"), *ROOT.glob("dmls_core/**/*.py"), *ROOT.glob("images/**/*")]
    found = {
        option
        for path in texts
        if path.is_file() and path.suffix in (".py", ".yaml", ".sh")
        for option in re.findall(r"--[a-z][a-z-]+", path.read_text())
    }
    return frozenset(found)


@cache
def routes() -> tuple[re.Pattern[str], ...]:
    """Return the paths of the REST API, from its generated reference."""
    page = (ROOT / "docs/reference/rest-api.md").read_text()
    paths = re.findall(r"^`(?:GET|POST|PUT|PATCH|DELETE) (/[^`]*)`", page, re.MULTILINE)
    return tuple(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths)


def is_route(path: str) -> bool:
    """Return whether the REST API has a path."""
    return any(route.fullmatch(path.rstrip("/")) for route in routes())


def faults(script: str) -> list[str]:
    """Return what a shell script calls that does not exist."""
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    found = [done.stderr.strip()] if done.returncode else []
    found += [f"no variable {name}" for name in set(re.findall(r"DMLS_[A-Z_]+", script)) - dmls_variables()]
    if "docker-compose" in script:
        named = set(re.findall(r"(?:^export |(?<=\s))([A-Z][A-Z_]+)=", script, re.MULTILINE))
        found += [f"no variable {name}" for name in named - compose_variables().keys()]
    found += [f"no path {path}" for path in missing_paths(script)]
    found += [f"no route {path}" for path in re.findall(r"/api/v1(/[\w/-]+)", script) if not is_route(path)]
    for command in commands(script):
        found += _command_faults(command)
    return found


def missing_paths(text: str) -> list[str]:
    """Return the paths of this repository in a text that lead nowhere."""
    return [path for path in PATH.findall(text) if not any(ROOT.glob(path.rstrip("/.,:")))]


def commands(script: str) -> list[list[str]]:
    """Return the words of each simple command, without redirections, variables before it, and comments."""
    script = re.sub(r"<<'?(\w+)'?(.*)\n(?:.*\n)*?\1\n?", r"\2\n", script)
    script = re.sub(r"(?m)(?:^|(?<=\s))#.*$", "", script.replace("\\\n", " "))
    # The command in "$(command)" is one of its own, and leaves a word behind.
    inner = re.findall(r"\$\(([^()]*)\)", script)
    script = re.sub(r"\$\(date [^()]*\)", "2026-01-31", script)
    script = re.sub(r"\$\([^()]*\)", "VALUE", script)
    words: list[list[str]] = [[]]
    lexer = shlex.shlex(script, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    redirected = False
    for word in lexer:
        if set(word) <= set("();|&\n") or word in ("do", "then", "else"):
            words.append([])
        elif set(word) <= set("<>&"):
            if words[-1] and words[-1][-1].isdigit():
                words[-1].pop()
            redirected = True
        elif redirected:
            redirected = False
        elif words[-1] or not re.match(r"(\w+=|!$|while$|until$|if$|done$|fi$)", word):
            words[-1].append(word)
    return [command for command in words if command] + [c for script in inner for c in commands(script)]


def _command_faults(words: list[str]) -> list[str]:
    program, *arguments = words
    name = program.rpartition("/")[2]
    if name == "dmls":
        return _dmls_faults(arguments)
    if name == "docker-compose" and "dmls" in arguments:
        return _dmls_faults(arguments[arguments.index("dmls") + 1 :])
    if name == "airflow":
        return _airflow_faults(arguments)
    if name == "make":
        targets = {word for word in arguments if "=" not in word}
        return [f"no target {target}" for target in targets - make_targets()]
    if name in ("pip", "uv") and "install" in arguments:
        named = {extra for word in arguments for extra in re.findall(r"^dmls\[([\w,-]+)\]", word)}
        return [f"no extra {name}" for one in named for name in set(one.split(",")) - extras()]
    if name == "tritonserver" or "tritonserver" in arguments:
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        return [f"no option {option}" for option in options - triton_options()]
    if name.startswith("python") and arguments[:1] == ["-m"]:
        path = ROOT / arguments[1].replace(".", "/")
        known = path.with_suffix(".py").exists() or path.is_dir() or "." not in arguments[1]
        return [] if known else [f"no module {arguments[1]}"]
    return []


def _dmls_faults(arguments: list[str]) -> list[str]:
    group: Any = get_command(app)  # Typer has its own copy of click
    context = None
    while True:
        try:
            if not hasattr(group, "commands"):
                group.make_context(group.name, list(arguments), parent=context)
                return []
            if arguments in ([], ["--help"]):
                return []
            context = group.context_class(group, info_name="dmls", parent=context)
            _, group, arguments = group.resolve_command(context, arguments)
        except ClickException as error:
            return [] if NO_FILE.search(f"{error}") else [f"dmls {' '.join(arguments)}: {error!r}"]


def _airflow_faults(arguments: list[str]) -> list[str]:
    from airflow.cli.cli_parser import get_parser

    parser: argparse.ArgumentParser = get_parser()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(arguments)
    except SystemExit:
        return [f"airflow {' '.join(arguments)}: {said.getvalue()}"]
    return []
