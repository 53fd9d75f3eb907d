"""Every code block of the documentation is checked by what reads it, or run by the test that it names.

A comment above a block says what its language does not: ``<!-- check: READER -->``,
``<!-- given: ... -->`` what its reader has besides, ``<!-- run by: tests/... -->`` the test that runs it, and
``<!-- message of: MODULE -->`` the module that writes it.
"""

from __future__ import annotations

import ast
import csv
import importlib
import importlib.util
import inspect
import io
import json
import re
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
import yaml
from airflow.sdk import DAG
from airflow.sdk.configuration import conf

from dmls_core import extensions
from dmls_core.airflow.settings import BUNDLE_CLASSPATH, split_kwargs
from dmls_core.models import load_spec
from dmls_core.models.load import change_spec
from dmls_core.monitoring.delayed_labels import read_labels
from dmls_core.serving.predict.batch_scoring import TableRequest
from tests.services.kubernetes_api import check_manifest
from tests.support import shell
from tests.support.messages import missing_parts
from tests.support.pages import ROOT, Block, blocks
from tests.support.pods import pod_from
from tests.support.prediction_server import Server
from tests.support.prometheus_names import unknown_metrics

BLOCKS = list(blocks())

MINIMAL = """
model = "xgboost-classifier"
n_trials = 5
columns.target = "y"
"""


def merge(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the keys of ``more``, table by table."""
    tables = {key: merge(base[key], value) for key, value in more.items() if isinstance(base.get(key), dict)}
    return {**base, **more, **tables}


def check_test(block: Block) -> None:
    """Check that the test that runs a block exists and names its page."""
    assert Path(block.page).name in (ROOT / block.comments["run by"]).read_text()


def check_toml(block: Block) -> None:
    """Check a project with entry points, or a spec; of a spec, a part is enough."""
    document = tomllib.loads(block.text)
    if "project" in document:
        groups = document["project"]["entry-points"].keys()
        assert groups <= set(extensions.GROUPS), groups
        return
    if "model" in document:
        load_spec(block.text.encode())
    else:
        given = tomllib.loads(MINIMAL + block.comments.get("given", ""))
        load_spec(tomli_w.dumps(merge(given, document)).encode())


def check_scored_table(block: Block) -> None:
    TableRequest.model_validate(tomllib.loads(block.text))


def check_bundle_kwargs(block: Block) -> None:
    text = block.text if block.text.startswith("{") else "{" + block.text + "}"
    split_kwargs({"root": "s3://bucket/dmls"} | json.loads(text))


def check_bundle_entries(block: Block) -> None:
    check_entries(json.loads(block.text))


def check_entries(entries: list[dict[str, Any]]) -> None:
    """Check a list as ``dag_bundle_config_list`` has it."""
    assert BUNDLE_CLASSPATH in [entry["classpath"] for entry in entries]
    for entry in entries:
        module, _, name = entry["classpath"].rpartition(".")
        assert hasattr(importlib.import_module(module), name)
        assert entry.keys() <= {"name", "classpath", "kwargs", "team_name"}
        if entry["classpath"] == BUNDLE_CLASSPATH:
            split_kwargs(entry["kwargs"])


def check_run_changes(block: Block) -> None:
    spec = load_spec(b'model = "xgboost-classifier"\n[columns]\ntarget = "y"\n[data]\npath = "{date}.csv"\n')
    change_spec(spec, json.loads(block.text))


def check_pod_template(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_from(json.loads(block.text), monkeypatch)
    for part, fields in json.loads(block.text).items():
        for field, value in fields.items():
            merged = pod[part][field]
            assert value.items() <= merged.items() if isinstance(value, dict) else value == merged


def check_yaml(block: Block) -> None:
    """Check manifests of Kubernetes' own kinds by their schemas, and the queries of KEDA's."""
    for manifest in yaml.safe_load_all(block.text):
        if manifest["apiVersion"].startswith("keda.sh/"):
            for trigger in manifest["spec"]["triggers"]:
                assert not unknown_metrics(trigger["metadata"]["query"])
        else:
            check_manifest(manifest)


def check_helm_values(block: Block) -> None:
    config = yaml.safe_load(block.text)["config"]
    for section, options in config.items():
        for option in options:
            assert conf.has_option(section, option), f"[{section}] {option}"
    check_entries(json.loads(config["dag_processor"]["dag_bundle_config_list"]))


def check_python(block: Block) -> None:
    """Check that a program compiles, and that what it imports exists."""
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            names = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            package = module.partition(".")[0]
            if package == "dmls_core":
                imported = importlib.import_module(module)
                assert name is None or hasattr(imported, name), f"{module} has no {name}"
            else:
                example = list(ROOT.glob(f"examples/plugins/*/{package}.py"))
                importable = package in IN_TRITON or importlib.util.find_spec(package)
                assert example or importable, f"there is no {package}"


IN_TRITON = {"predictor", "triton_python_backend_utils"}
"""Modules that only the process of a model has: of the example of a serving format, and of Triton."""


def run_python(block: Block) -> None:
    """Run a program after the lines that ``given`` has."""
    with DAG("documented", schedule=None):
        exec(compile(block.comments["given"] + "\n" + block.text, str(block), "exec"), {})


def check_client(block: Block) -> None:
    """Run a program that predicts ``frame`` over REST, against a server that adds up each row."""
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names: dict[str, Any] = {"frame": pd.DataFrame({"a": [1.0, 2.0]})}
    try:
        exec(block.text.replace("https://airflow.example", server.url), names)
    finally:
        server.shutdown()
    assert names["predictions"]["prediction"].tolist() == ["p", "p"]


def check_shell(block: Block) -> None:
    assert shell.faults(block.text) == []


PROMPT = re.compile(r"^\$ ((?:.*[\\|]\n)*.*)$", re.MULTILINE)


def check_console(block: Block) -> None:
    """Check the commands behind the prompt, and the phrases of what they print."""
    lines = PROMPT.findall(block.text)
    assert lines
    assert shell.faults("\n".join(lines)) == []
    printed = PROMPT.sub("", block.text).splitlines()
    assert {part for line in printed for part in missing_parts(line)} == set()


def check_dockerfile(block: Block) -> None:
    used = "".join(
        path.read_text() for path in [*ROOT.glob("images/*/Dockerfile"), ROOT / "docker-compose.yaml"]
    )
    for line in block.text.splitlines():
        instruction, _, argument = line.partition(" ")
        if instruction == "FROM":
            name, _, tag = argument.partition(":")
            assert name not in used or f"{name}:{tag}" in used, f"the images use another {name}"
        else:
            assert instruction == "RUN"
            assert shell.faults(argument) == []


def check_javascript(block: Block) -> None:
    node = shutil.which("node")
    if not node:
        pytest.skip("there is no node on this machine")
    done = subprocess.run([node, "--check", "-"], input=block.text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def check_promql(block: Block) -> None:
    for query in block.text.splitlines():
        assert not unknown_metrics(query)


def check_message(block: Block) -> None:
    """Check that the named module has a part of the message, of three words or more."""
    spec = importlib.util.find_spec(block.comments["message of"])
    assert spec
    assert spec.origin
    message = " ".join(block.text.split())
    literals = {
        " ".join(node.value.split())
        for node in ast.walk(ast.parse(Path(spec.origin).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= 3
    }
    assert any(literal in message for literal in literals), f"no part of it is in {spec.origin}"


def check_labels(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(block.text)
    assert len(read_labels(path, "late", numbers=False)) == len(list(csv.DictReader(io.StringIO(block.text))))


LANGUAGES: dict[str, Callable[..., None]] = {
    "bash": check_shell,
    "console": check_console,
    "dockerfile": check_dockerfile,
    "js": check_javascript,
    "promql": check_promql,
    "python": check_python,
    "sh": check_shell,
    "shell": check_shell,
    "toml": check_toml,
    "yaml": check_yaml,
}
"""Language -> how its blocks are checked."""

READERS: dict[str, Callable[..., None]] = {
    "bundle entries": check_bundle_entries,
    "bundle kwargs": check_bundle_kwargs,
    "changes of a run": check_run_changes,
    "client": check_client,
    "helm values": check_helm_values,
    "labels": check_labels,
    "pod template": check_pod_template,
    "scored table": check_scored_table,
}
"""``check`` in the comment above a block -> how the block is checked."""


def checker(block: Block) -> Callable[..., None] | None:
    """Return how a block is checked; None if nothing claims it."""
    if "run by" in block.comments:
        return check_test
    if "message of" in block.comments:
        return check_message
    if "given" in block.comments and block.language == "python":
        return run_python
    return (
        READERS.get(block.comments["check"]) if "check" in block.comments else LANGUAGES.get(block.language)
    )


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_what_its_reader_accepts(block, request):
    check = checker(block)
    assert check, f"{block}: nothing reads {block.language!r}: say above it what does"
    names = list(inspect.signature(check).parameters)[1:]
    check(block, **{name: request.getfixturevalue(name) for name in names})


@pytest.mark.parametrize(
    ("language", "text", "comments", "fault"),
    [
        ("toml", "[search]\ntrials = 3\n", {}, "trials"),
        ("toml", '[project.entry-points."dmls.animals"]\ncat = "a:B"\n', {}, "animals"),
        ("shell", "dmls submit spec.toml --taem shop\n", {}, "--taem"),
        ("shell", "dmls submitt spec.toml\n", {}, "submitt"),
        ("shell", "make tests\n", {}, "no target tests"),
        ("shell", "if true\n", {}, "syntax error"),
        ("shell", "export DMLS_ROTO=1\n", {}, "no variable DMLS_ROTO"),
        ("shell", "export TRITON_PROT=1\ndocker-compose up\n", {}, "no variable TRITON_PROT"),
        ("shell", "docker build --file images/trainr/Dockerfile .\n", {}, "no path images/trainr/Dockerfile"),
        ("shell", "airflow pools sit dmls_cpu 4\n", {}, "invalid choice: 'sit'"),
        ("shell", "pip install 'dmls[airflows]'\n", {}, "no extra airflows"),
        ("shell", "tritonserver --exit-on-eror=false\n", {}, "no option --exit-on-eror"),
        ("shell", "python -m dmls_core.serving.start_up\n", {}, "no module dmls_core.serving.start_up"),
        ("shell", 'eval "$(dmls envs)"\n', {}, "envs"),
        ("shell", 'curl "$DMLS/api/v1/score/shop/churn/file"\n', {}, "no route /score/shop/churn/file"),
        ("console", "$ dmls drift lab/flowers new.csv --outt x\nCOLUMN\n", {}, "--outt"),
        ("console", "$ dmls jobs\nno such words here\n", {}, "no such words here"),
        ("dockerfile", "FROM nvcr.io/nvidia/tritonserver:25.11-py3\n", {}, "the images use another"),
        ("json", '{"runer": "docker"}', {"check": "bundle kwargs"}, "runer"),
        ("json", '{"spec": {"nodeSelektor": {"a": "b"}}}', {"check": "pod template"}, "nodeSelektor"),
        ("json", '{"n_trails": 5}', {"check": "changes of a run"}, "n_trails"),
        ("yaml", "apiVersion: v1\nkind: Service\nspec: {port: 80}\n", {}, "port"),
        ("python", "from dmls_core.client import konnect\n", {}, "konnect"),
        ("python", "arguments = Argument()\n", {"given": "import json"}, "'Argument' is not defined"),
        ("js", "const a = ;\n", {}, "Unexpected token"),
        ("promql", "dmls_drift_detectet == 1\n", {}, "dmls_drift_detectet"),
        ("text", "no such words here", {"message of": "dmls_core.errors"}, "no part of"),
        ("nginx", "", {"run by": "tests/integration/test_tls.py"}, "page.md"),
    ],
)
def test_a_faulty_block_is_refused(language, text, comments, fault, request):
    block = Block("page.md", 1, language, "", text, comments)
    with pytest.raises(Exception, match=re.escape(fault)):
        test_a_block_is_what_its_reader_accepts(block, request)


def test_a_block_that_nothing_reads_is_refused(request):
    with pytest.raises(AssertionError, match="nothing reads 'cobol'"):
        test_a_block_is_what_its_reader_accepts(Block("page.md", 1, "cobol", "", "", {}), request)
