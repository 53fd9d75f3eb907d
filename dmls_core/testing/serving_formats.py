"""Tests that every serving format must pass."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dmls_core import extensions
from dmls_core.errors import ServingError
from dmls_core.sandbox import Limits, SandboxError, Worker
from dmls_core.serving.formats.base import ServingFormat, WrittenModel, module_source
from dmls_core.serving.formats.model_check import inspect_model
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.triton.model_config import ModelShape, configured_versions

FEATURES = 5

PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")

_PREDICT = """
import sys
from pathlib import Path
sys.modules["dmls_core"] = None
sys.path.insert(0, sys.argv[1])
import numpy as np
from predictor import load_model
rows = np.load(sys.argv[2] + "/rows.npy")
np.save(sys.argv[2] + "/answers.npy", load_model(Path(sys.argv[3]))(rows))
"""


class ExportedModel(NamedTuple):
    """A model whose files are in ``folder``."""

    fitted: Any
    written: WrittenModel
    folder: Path
    rows: NDArray[np.float32]
    n_classes: int


class ServingFormatSuite:
    """Tests of a ``ServingFormat``; a subclass names the class, and defines ``fit``.

    Examples:
        ``fit`` returns a model as an engine of this format fits it. pytest runs every test; here, one is
        called by hand:

        >>> from dmls_core.models import CATALOGUE
        >>> from dmls_core.models.engines.lightgbm import LightGBMEngine
        >>> from dmls_core.serving.formats.treelite.serving_format import TreeliteFormat
        >>> from dmls_core.testing import ServingFormatSuite
        >>> class TestTreelite(ServingFormatSuite):
        ...     format_class = TreeliteFormat
        ...     def fit(self, features, target, n_classes):
        ...         model = CATALOGUE[f"lightgbm-{'classifier' if n_classes else 'regressor'}"]
        ...         return LightGBMEngine().fit(
        ...             model, {}, features, target, n_classes=n_classes, seed=1, threads=1
        ...         )
        >>> TestTreelite().test_it_is_registered(TreeliteFormat())
    """

    format_class: ClassVar[type[ServingFormat]]

    TRUNCATIONS = 8
    """Damaged files that are tried."""

    def fit(self, features: NDArray[np.float32], target: NDArray[Any], n_classes: int) -> Any:  # noqa: ANN401
        """Return a fitted model; ``n_classes`` is 0 for a regression."""
        raise NotImplementedError

    @pytest.fixture(params=[0, 2, 3], ids=["values", "two classes", "three classes"])
    def n_classes(self, request: pytest.FixtureRequest) -> int:
        """Return the number of classes of the model, 0 for a regression."""
        n_classes: int = request.param
        return n_classes

    @pytest.fixture
    def serving(self) -> ServingFormat:
        """Return the format."""
        return self.format_class()

    @pytest.fixture
    def exported(self, serving: ServingFormat, n_classes: int, tmp_path: Path) -> ExportedModel:
        """Write a model's files."""
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(300, FEATURES)).astype(np.float32)
        target = rows[:, 0] + rows[:, 1] ** 2
        if n_classes:
            target = np.digitize(target, np.quantile(target, np.arange(1, n_classes) / n_classes))
        fitted = self.fit(rows, target, n_classes)
        folder = tmp_path / "model"
        folder.mkdir()
        return ExportedModel(fitted, serving.export(fitted, folder, threads=1), folder, rows, n_classes)

    # -- the tests -------------------------------------------------------------------------------------

    def test_it_is_registered(self, serving: ServingFormat) -> None:
        """The entry point has the format's name."""
        assert extensions.load("dmls.serving_formats", serving.name) is self.format_class

    def test_the_files_predict_as_the_fitted_model(
        self, serving: ServingFormat, exported: ExportedModel
    ) -> None:
        """ExportedModel files agree with the model within the tolerance, and are no pickles."""
        tolerance = exported.written.tolerance(exported.rows) if exported.written.tolerance else None
        expected = np.asarray(exported.fitted.predict(exported.rows))
        assert expected.shape == ((300, exported.n_classes) if exported.n_classes else (300,))
        served = np.asarray(exported.written.predict(exported.rows), np.float32)
        check_parity(expected, served, tolerance)
        for file in serving.files:
            assert not (exported.folder / file).read_bytes().startswith(PICKLES)
        assert serving.size(exported.folder) == sum(
            (exported.folder / file).stat().st_size for file in serving.files
        )
        assert serving.model_bytes(exported.fitted) == pytest.approx(serving.size(exported.folder), rel=0.1)

    def test_they_are_loaded_again(self, serving: ServingFormat, exported: ExportedModel) -> None:
        """``load`` predicts as ``export`` did, for missing values too."""
        rows = exported.rows.copy()
        rows[np.random.default_rng(1).random(rows.shape) < 0.3] = np.nan
        expected = np.asarray(exported.written.predict(rows), np.float32)
        check_parity(expected, np.asarray(serving.load(exported.folder, threads=1)(rows), np.float32))

    def test_the_predictor_needs_no_dmls(
        self, serving: ServingFormat, exported: ExportedModel, tmp_path: Path
    ) -> None:
        """MLflow runs a copy of the module where DMLS is not installed."""
        code = tmp_path / "code"
        code.mkdir()
        (code / "predictor.py").write_bytes(module_source(serving.predictor).read_bytes())
        np.save(tmp_path / "rows.npy", exported.rows)
        arguments = [str(code), str(tmp_path), str(exported.folder)]
        subprocess.run([sys.executable, "-c", _PREDICT, *arguments], check=True, timeout=120)
        answers = np.asarray(np.load(tmp_path / "answers.npy"), np.float32)
        check_parity(np.asarray(exported.written.predict(exported.rows), np.float32), answers)

    def test_the_files_are_inspected(self, serving: ServingFormat, exported: ExportedModel) -> None:
        """``inspect`` finds the kind of model and its shape."""
        assert serving.inspect(exported.folder) == {
            "task": "classification" if exported.n_classes else "regression",
            "features": FEATURES,
            "classes": exported.n_classes or 1,
        }

    def test_damaged_files_are_refused(self, serving: ServingFormat, exported: ExportedModel) -> None:
        """A file that ends early never reaches Triton, and the process that reads it ends no other."""
        with Worker(Limits(memory=2 << 30, seconds=60, cpu_seconds=60)) as worker:
            for file in serving.files:
                path = exported.folder / file
                content = path.read_bytes()
                for part in range(self.TRUNCATIONS):
                    path.write_bytes(content[: part * len(content) // self.TRUNCATIONS])
                    with pytest.raises((ServingError, SandboxError)):
                        worker.call(inspect_model, serving.name, str(exported.folder))
                path.write_bytes(content)

    def test_triton_can_parse_the_configuration(self, serving: ServingFormat, n_classes: int) -> None:
        """It has the tensors of every format, and the backend's parameters."""
        protobuf = pytest.importorskip("google.protobuf.text_format")
        messages = pytest.importorskip("tritonclient.grpc.model_config_pb2")
        shape = ModelShape(FEATURES, n_classes or 1, classifier=n_classes > 0)
        text = serving.config("lab.iris", shape, versions=[3])
        config = protobuf.Parse(text, messages.ModelConfig())
        assert (config.name, config.backend) == ("lab.iris", serving.backend)
        assert [(t.name, list(t.dims)) for t in config.input] == [("input__0", [FEATURES])]
        assert [(t.name, list(t.dims)) for t in config.output] == [("output__0", [n_classes or 1])]
        assert configured_versions(text) == (3,)

    def test_the_code_for_triton_is_python(self, serving: ServingFormat) -> None:
        """What is written next to the model in Triton compiles, and imports nothing of DMLS."""
        for file, source in serving.code().items():
            modules = [
                name
                for node in ast.walk(ast.parse(source, file))
                if isinstance(node, ast.Import | ast.ImportFrom)
                for name in (
                    [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                )
            ]
            assert not [name for name in modules if name.partition(".")[0] == "dmls_core"]
