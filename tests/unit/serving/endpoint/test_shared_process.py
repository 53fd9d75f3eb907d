"""The shared process, with Triton's module for Python models played: loading, eviction and refusals."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from dmls_core.data.encoder import Encoder
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.shared_process import HUNG_SECONDS, MEMORY_BYTES, SHARED
from dmls_core.serving.triton.tensors import table_tensors
from tests.support.trained_run import trained_run, user_rows

MAP = re.compile(r'(input|output)_map \{ key: "([^"]+)" value: "([^"]+)" \}')
MODELS = {"lab.classes": {}, "lab.binary": {"binary": True}, "lab.value": {"regression": True}}


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


class TritonError:
    INVALID_ARG, INTERNAL = "invalid", "internal"

    def __init__(self, message: str, code: str) -> None:
        self.message, self.code = message, code


class Response:
    def __init__(self, tensors: Any = (), error: TritonError | None = None) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in tensors}
        self.error = error.message if error else ""


class MetricFamily:
    COUNTER = "counter"
    counted: ClassVar[Counter[tuple[str, ...]]] = Counter()

    def __init__(self, name: str, description: str, kind: str) -> None:  # noqa: ARG002
        self.name = name

    def Metric(self, labels: dict[str, str]) -> Any:  # noqa: N802  as Triton has it
        key = (self.name, *labels.values())
        return types.SimpleNamespace(increment=lambda number: self.counted.update({key: number}))


class Request:
    def __init__(self, inputs: dict[str, np.ndarray], outputs: list[str], request_id: str = "") -> None:
        self._inputs, self.requested_output_names = inputs, lambda: outputs
        self.request_id = lambda: request_id

    def inputs(self) -> list[Tensor]:
        return [Tensor(*item) for item in self._inputs.items()]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Three models that are configured for the shared process."""
    base = tmp_path_factory.mktemp("shared")
    repository = Repository(str(base / "models"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMLS_SERVING_SHARED_BYTES", "1000000")
        for name, options in MODELS.items():
            trained_run(base / name, **options)
            with repository.lock(name):
                repository.add(name, base / name / "model")
                repository.serve(name, 1)
    return repository


@pytest.fixture(scope="module")
def code(models: Repository) -> Iterator[Any]:
    """The module that the shared process runs."""
    folder = models.root / SHARED / "1"
    played = types.ModuleType("triton_python_backend_utils")
    played.Tensor, played.InferenceResponse, played.TritonError = Tensor, Response, TritonError
    played.TritonModelException = RuntimeError
    played.MetricFamily = MetricFamily
    played.Logger = types.SimpleNamespace(log_error=[].append)
    sys.modules["triton_python_backend_utils"] = played
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("shared_process", folder / "model.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(folder))
        for name in [n for n in sys.modules if n.partition(".")[0] in ("dmls_table", "table_versions")]:
            del sys.modules[name]
        del sys.modules["triton_python_backend_utils"]


@pytest.fixture
def start(code: Any, models: Repository) -> Iterator[Callable[..., Any]]:
    def start(memory: int = MEMORY_BYTES) -> Any:
        instance = code.TritonPythonModel()
        parameters = {"memory_bytes": memory, "hung_seconds": HUNG_SECONDS}
        values = {name: {"string_value": str(value)} for name, value in parameters.items()}
        config = json.dumps({"parameters": values})
        folder = str(models.root / SHARED)
        instance.initialize({"model_config": config, "model_repository": folder, "model_version": "1"})
        started.append(instance)
        return instance

    started: list[Any] = []
    yield start
    for instance in started:
        instance.finalize()


def through(repository: Repository, front: str, inputs: dict[str, np.ndarray]) -> Request:
    """Return the request that an ensemble makes of the inputs, by its configuration."""
    maps = MAP.findall((repository.root / front / "config.pbtxt").read_text())
    keys = {value: key for kind, key, value in maps if kind == "input"}
    return Request(
        {keys[name]: values for name, values in inputs.items()},
        [k for kind, k, _ in maps if kind == "output"],
    )


def encoder_of(repository: Repository, name: str) -> Encoder:
    return Encoder.from_json(repository.read(name, 1, "encoder.json"))


def tensors(repository: Repository, name: str, rows: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    made = table_tensors(encoder_of(repository, name), rows)
    return {
        key: np.array([[v.encode() if isinstance(v, str) else v for v in row] for row in values], object)
        if values.dtype == object
        else values
        for key, values in made.items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_both_ensembles_answer_as_the_checkpoint(start, models, name):
    rows = user_rows(20, seed=1)
    encoded = encoder_of(models, name).transform(rows)
    model = checkpoint.load(models.root / name / "1/checkpoint.tl")
    expected = checkpoint.predict(model, encoded)
    asked = [
        through(models, name, {"input__0": encoded}),
        through(models, f"{name}.table", tensors(models, name, rows)),
    ]
    forest, table = start().execute(asked)
    assert not forest.error + table.error
    (output,) = forest.outputs.values()
    assert np.array_equal(output, expected)
    predicted = next(v for k, v in table.outputs.items() if k.startswith(("probabilities", "value")))
    assert np.array_equal(predicted.reshape(expected.shape), expected)
    assert next(v for k, v in table.outputs.items() if k.startswith("version")).tolist() == [[1]] * 20
    if name != "lab.value":
        labels = models.read(name, 1, "golden.json")["labels"]
        chosen = [label.decode() for label in table.outputs["label"].ravel()]
        assert chosen == [labels[i] for i in expected.argmax(axis=1)]


def test_rows_unlike_the_training_are_noted_for_each_model(start, models):
    name, rows = "lab.value", user_rows(3)
    rows["colour"][1] = "Red"
    for values in rows.values():
        values[2] = None
    asked = through(models, f"{name}.table", tensors(models, name, rows))
    own = through(models, f"{name}.table", tensors(models, name, rows))
    own.request_id = lambda: "dmls.golden"
    outputs = asked.requested_output_names()
    earlier = through(models, f"{name}.table", tensors(models, name, rows))
    earlier.requested_output_names = lambda: [output for output in outputs if output != "notes"]
    MetricFamily.counted.clear()
    process = start()
    noted, _, without = process.execute([asked, own, earlier])
    lines = [json.loads(text) if text else [] for text in noted.outputs["notes"].ravel()]
    assert lines[0] == []
    assert lines[1] == [
        "column 'colour': 'Red' does not occur in the training data; the nearest category is 'red'"
    ]
    assert lines[2] == ["all columns of the model are missing"]
    assert "notes" not in without.outputs
    process.counts.update()
    assert MetricFamily.counted == {
        ("dmls_notes_total", name, "unknown-category"): 1,
        ("dmls_notes_total", name, "empty-row"): 1,
    }


def test_wrong_requests_fail_alone(start, models):
    name, rows = "lab.classes", user_rows(3)
    good = through(models, name, {"input__0": encoder_of(models, name).transform(rows)})
    (output,) = good.requested_output_names()
    ((given, _),) = [(t.name(), t) for t in good.inputs()]
    table = through(models, f"{name}.table", tensors(models, name, rows))
    wide = tensors(models, name, rows)
    packed = Request({"numbers": np.zeros((3, 1)), **{t.name(): t.as_numpy() for t in table.inputs()}}, [])
    packed.requested_output_names = table.requested_output_names
    outputs = table.requested_output_names()
    value = next(o.replace("probabilities", "value") for o in outputs if "probab" in o)
    number = next(o for o in outputs if o.startswith("version"))
    asked = {
        "the rows have shape [3, 2], expected [-1, 3]": Request(
            {given: np.zeros((3, 2), np.float32)}, [output]
        ),
        "the rows have shape [3, 4]": Request({given: np.zeros((3, 4), np.float32)}, [output]),
        "numbers has shape [3, 1], expected [-1, 2]": packed,
        "names no version of a model": Request({"number_0": wide["size"]}, ["label"]),
        "this request names no version": Request({given: np.zeros((3, 3), np.float32)}, [output, "output_1"]),
        "no model has the slot": Request({"input_63": np.zeros((3, 3), np.float32)}, [output]),
        "columns are missing: 'count', 'colour'": Request({"number_0": wide["size"]}, outputs),
        "the model has no input number_2": Request({"number_2": wide["size"]}, outputs),
        "the columns have different numbers of rows": Request(
            {"number_0": np.zeros((3, 1)), "number_1": np.zeros((2, 1))}, outputs
        ),
        "the model has no output value": Request({"number_0": wide["size"]}, [value, number]),
    }
    answers = start().execute([good, *asked.values(), table])
    assert not answers[0].error
    assert not answers[-1].error
    for expected, answer in zip(asked, answers[1:-1], strict=True):
        assert expected in answer.error


def test_a_version_is_read_at_its_first_request_and_forgotten_for_others(start, models):
    asked = {
        name: through(models, name, {"input__0": encoder_of(models, name).transform(user_rows(1))})
        for name in MODELS
    }
    process = start()
    assert process.versions == {}
    process.execute(list(asked.values()))
    sizes = [known[1].size for known in process.versions.values()]
    assert process.size == sum(sizes)
    small = start(memory=process.size - 1)
    answers = small.execute(
        [asked["lab.classes"], asked["lab.binary"], asked["lab.classes"], asked["lab.value"]]
    )
    assert not any(answer.error for answer in answers)
    assert len(small.versions) < len(MODELS), "the oldest must make room"
    assert small.size == sum(known[1].size for known in small.versions.values()) <= small.limit
    assert [k[1].version.labels is None for k in small.versions.values()][-1], "the last one stays"
    tiny = start(memory=1)
    assert not any(answer.error for answer in tiny.execute(list(asked.values())))
    assert len(tiny.versions) == 1


def test_a_damaged_file_is_not_read_and_a_removed_version_not_answered(code, start, models, monkeypatch):
    name = "lab.binary"
    asked = through(models, name, {"input__0": encoder_of(models, name).transform(user_rows(1))})
    other = through(models, "lab.classes", {"input__0": np.zeros((1, 3), np.float32)})
    file = models.root / name / "1/checkpoint.tl"
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        damaged, fine = start().execute([asked, other])
        assert "checkpoint.tl of version 1 is damaged" in damaged.error
        assert not fine.error
        file.unlink()
        logged: list[str] = []
        monkeypatch.setattr(code.pb_utils.Logger, "log_error", logged.append)
        (missing,) = start().execute([asked])
        assert missing.error == "the model cannot answer: see Triton's log"
        assert str(file) in logged[0]
    finally:
        file.write_bytes(content)
    process = start()
    assert not process.execute([asked])[0].error
    with models.lock(name):
        models._configurations.free(name, 1)
    assert "no model has the slot" in process.execute([asked])[0].error
    assert process.size == 0
    with models.lock(name), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMLS_SERVING_SHARED_BYTES", "1000000")
        models.serve(name, 1)
    assert not process.execute([asked])[0].error


@pytest.mark.parametrize("model", ["../secret.job", "lab", "/etc.x", "lab.x/../../y.z"])
def test_a_record_that_names_a_path_is_refused(start, models, model):
    folder = models.root / ".dmls/shared/1023"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "63.json").write_text(json.dumps({"model": model, "version": 1, "sha256": {}}))
    (answer,) = start().execute([Request({"input_63": np.zeros((1, 3), np.float32)}, ["output_1023"])])
    assert "63.json is not a record of a model" in answer.error
    (folder / "63.json").unlink()


def test_the_process_says_that_it_runs(start):
    (answer,) = start().execute([Request({"number_0": np.zeros((1, 1))}, ["label"], "dmls.alive")])
    assert answer.outputs["label"].tolist() == [[b"alive"]]
