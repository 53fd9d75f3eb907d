"""The table of ``tests/support/fil_cases.py`` on the server that is there.

It is the stand-in, or the genuine FIL backend of the server in ``DMLS_TRITON_SERVER``.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmls_core.devstack.triton import running_backend
from dmls_core.errors import ServingError
from dmls_core.serving.triton.backends import backend_of
from tests.support.fil_cases import CASES, ROWS, Case, made_model

names = (f"lab.case{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def client(triton):
    with triton.client(timeout=20.0) as client:
        yield client


def outcome(triton, client, case: Case) -> tuple[str, str]:
    """Return what the server makes of a case, and the message of a refusal."""
    name = next(names)
    folder = triton.repository.root / name
    (folder / "1").mkdir(parents=True)
    made_model(case.model).serialize(folder / "1" / "checkpoint.tl")
    (folder / "config.pbtxt").write_text(case.config(name))
    try:
        client.load(name)
    except ServingError as error:
        return "refused", str(error)
    try:
        rows = np.pad(ROWS, ((0, 0), (0, case.inputs - ROWS.shape[1])))
        if case.data_type == "TYPE_FP64":
            answers = client.infer_tensors(name, {"input__0": rows.astype(np.float64)}).as_numpy("output__0")
        else:
            answers = client.infer(name, rows)
    except ServingError as error:
        return "wrong", str(error)
    finally:
        client.unload(name)
    for kind in {case.does, case.before, case.stand_in} & {"probabilities", "positive", "labels", "values"}:
        right = case.right(kind)
        exact = "use_experimental_optimizations" not in case.change
        if answers.shape == right.shape and np.allclose(answers, right, rtol=0, atol=0 if exact else 1e-6):
            return kind, ""
    return "wrong", f"{answers[:2].tolist()}"


@pytest.fixture(scope="module")
def backend(triton, client) -> str:
    """Which backend is there: ``stand-in``, or the release since which a genuine one does what it does."""
    name = next(names)
    folder = triton.repository.root / name
    (folder / "1").mkdir(parents=True)
    made_model("three").serialize(folder / "1" / "checkpoint.tl")
    (folder / "config.pbtxt").write_text(CASES[0].config(name))
    client.load(name)
    found = backend_of(client.config(name))
    client.unload(name)
    if found == "stand-in":
        return found
    only_new = next(case for case in CASES if case.name == "is_classifier alone")
    return "24.10" if outcome(triton, client, only_new)[0] == "refused" else "26.06"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_accepted_and_refused(triton, client, backend: str, case: Case):
    if backend != "stand-in" and case.unsafe:
        pytest.skip("the genuine backend would write beyond its memory")
    changed = {"stand-in": case.stand_in, "24.10": case.before}.get(backend, "")
    found, message = outcome(triton, client, case)

    assert found == (changed or case.does), f"{backend}: {message}"
    if found == "refused" and backend != "24.10":
        assert case.message in message


def test_the_server_knows_which_backend_it_has(triton, backend: str):
    genuine = running_backend(triton.process.pid) == "genuine"
    assert (backend != "stand-in") is genuine
