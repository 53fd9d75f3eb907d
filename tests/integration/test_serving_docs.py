"""Every example of docs/how-to/call-triton.md runs against a real Triton server."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from dmls_core.serving.triton.model_config import matrices
from tests.support.table_endpoint import Served
from tests.support.trained_run import user_rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/call-triton.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
CURL = [code for language, code in BLOCKS if language == "bash" and code.startswith("curl")]


@pytest.fixture(scope="module")
def parts(triton, tmp_path_factory):
    with triton.client(timeout=60.0) as client:
        yield Served(triton.repository, client, tmp_path_factory.mktemp("docs") / "run", "lab.parts")


def run(parts, command, **options):
    environment = {
        **os.environ,
        "TRITON": parts.client.addresses["http"],
        "DMLS_TRITON_HTTP": parts.client.addresses["http"],
        "DMLS_TRITON_GRPC": parts.client.addresses["grpc"],
        "DMLS_TRITON_REPOSITORY": str(parts.repository.root),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(program):
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} on this machine")


def blocks(language):
    return [code for kind, code in BLOCKS if kind == language]


@pytest.mark.parametrize("number", range(len(CURL)))
def test_curl(parts, number):
    needs("curl")
    for line in re.split(r"\n(?=curl)", CURL[number].strip()):
        answer = json.loads(run(parts, ["bash", "-ec", line]))
        if "/infer" in line:
            assert answer["outputs"]
            assert "NaN" not in json.dumps(answer["outputs"])
        else:
            assert {"size", "count", "colour", *matrices(parts.encoder)} == {
                tensor["name"] for tensor in answer.get("inputs", answer.get("input", ()))
            }


def test_the_answer_that_is_shown_is_of_the_form_that_comes(parts):
    needs("curl")
    shown, joined = map(json.loads, blocks("json"))
    came = json.loads(run(parts, ["bash", "-ec", CURL[0]]))
    for answer in (shown, came):
        for output in answer["outputs"]:
            output["data"] = len(output["data"])
    assert shown == came
    assert joined == matrices(parts.encoder)


def test_javascript(parts):
    needs("node")
    (code,) = blocks("js")
    answer = json.loads(run(parts, ["node", "-e", code]))
    came = {output["name"]: output["data"] for output in answer["outputs"]}
    expected = parts.ask({"size": [0.4, None], "count": [3, 8], "colour": ["red", None]})
    assert came["label"] == expected["label"].ravel().tolist()


def test_python(parts):
    labels = parts.ask({"size": [0.4, None], "count": [3, 8], "colour": ["red", None]})["label"].ravel()
    codes = blocks("python")
    assert len(codes) == 2
    for code in codes:
        said = run(
            parts, [sys.executable, "-c", code.replace("localhost:8001", parts.client.addresses["grpc"])]
        )
        assert all(label in said for label in labels.tolist())


def test_csv(parts, tmp_path):
    rows = user_rows(20)
    with (tmp_path / "parts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(rows), *zip(*rows.values(), strict=True)])
    (command,) = [code for code in blocks("bash") if code.startswith("dmls")]
    run(parts, ["bash", "-ec", command], cwd=tmp_path)
    with (tmp_path / "predicted.csv").open() as file:
        predicted = [row["prediction"] for row in csv.DictReader(file)]
    assert predicted == parts.ask(rows)["label"].ravel().tolist()


def test_the_calls_of_a_model_card(parts):
    needs("curl")
    page = (parts.folder / "model/card.html").read_text()
    calls = [unescape(code) for code in re.findall(r"<pre>(curl.*?)</pre>", page, re.DOTALL)]
    answers = [json.loads(run(parts, ["bash", "-ec", call]))["outputs"] for call in calls]
    table = {output["name"]: output["data"] for output in answers[0]}
    (forest,) = answers[1]
    golden = json.loads((parts.folder / "model/golden.json").read_text())
    assert table["probabilities"] == forest["data"]
    assert forest["data"] == pytest.approx(golden["expected"][0], abs=1e-6)
