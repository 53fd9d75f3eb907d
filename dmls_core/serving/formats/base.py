"""The base class of serving formats: how models of one form are written, checked, served and run elsewhere.

A serving format is one class, registered under the entry point ``dmls.serving_formats``;
``docs/extending/serving-formats.md`` shows a complete one. ``model.json`` in a model's folder names its
format. Format modules import their libraries within methods, since deployments and pages need only names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmls_core import extensions
from dmls_core.errors import UserError, ValidationIssue
from dmls_core.serving.formats.tolerance import rows_that_differ
from dmls_core.serving.triton.backends import BackendKind
from dmls_core.serving.triton.model_config import SIMPLEST, InstanceKind, ModelShape, Scaling, model_config

if TYPE_CHECKING:
    import treelite

    from dmls_core.models.engines import Fitted

_GROUP: extensions.Group = "dmls.serving_formats"

_DEFAULT_FORMAT = "treelite"
"""The format of models whose ``model.json`` names none: models of the first releases."""

Predict = Callable[[NDArray[np.float32]], NDArray[Any]]
"""Predicts encoded rows, (n_rows, n_features): (n_rows, n_classes) probabilities, or (n_rows,) values."""


@dataclass(frozen=True, slots=True)
class WrittenModel:
    """A model as its files have it.

    Attributes:
        predict: predicts from the files.
        tolerance: difference up to which predictions for the golden rows, (n_rows, n_features), agree, see
            ``ServingFormat.rows_that_differ``; ``None``: that of a few additions in float32.
    """

    predict: Predict
    tolerance: Callable[[NDArray[np.float32]], float] | None = None


class ServingFormat(ABC):
    """A form in which models are served.

    Every format takes the same matrix, float32 ``input__0`` of shape (n_rows, n_features), and returns
    float32 ``output__0``: a probability for each class, or one value.

    Attributes:
        name: the name of the entry point; an engine names it in ``export_format``.
        backend: the Triton backend that loads the model.
        files: names of the files in a run's ``model/`` folder that the backend loads.
        predictor: module that predicts without DMLS and without Triton. It imports nothing of DMLS and
            defines ``load_model(folder, threads=-1)``, which returns a ``Predict``. MLflow models hold a
            copy of it.
        packages: distributions that ``predictor`` needs, besides NumPy.
        in_process: module with which the table endpoint predicts a few rows itself, as
            ``treelite/in_process.py`` does; empty: Triton's backend predicts all of them.

    Examples:
        >>> import json, pathlib
        >>> from dmls_core.serving.formats.base import ServingFormat
        >>> class MeanFormat(ServingFormat):
        ...     name, backend, files = "mean", "python", ("mean.json",)
        ...     predictor = "my_package.predictor"
        ...     def inspect(self, folder):
        ...         mean = json.loads((folder / "mean.json").read_text())
        ...         return {"task": "regression", "features": mean["features"], "classes": 1}
        >>> written = pathlib.Path("mean.json").write_text('{"mean": 2.5, "features": 3}')
        >>> MeanFormat().inspect(pathlib.Path())
        {'task': 'regression', 'features': 3, 'classes': 1}
        >>> MeanFormat().size(pathlib.Path()) == written
        True
    """

    name: str
    backend: ClassVar[str]
    files: ClassVar[tuple[str, ...]]
    predictor: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    in_process: ClassVar[str] = ""

    # -- in the trainer ------------------------------------------------------------------------------------

    def export(self, fitted: Fitted, folder: Path, *, threads: int) -> WrittenModel:  # noqa: ARG002
        """Write ``files`` to ``folder``, and return a function that predicts from them.

        Training compares its predictions with those of ``fitted``. By default the engine writes the files.
        """
        return WrittenModel(fitted.export(folder))

    def reference(self, folder: Path, rows: NDArray[np.float32]) -> NDArray[np.float32] | None:  # noqa: ARG002
        """Predict golden rows as the backend does, where that differs from ``export``'s function."""
        return None

    def model_bytes(self, fitted: Fitted) -> int:
        """Return the size of a model's files in bytes."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="dmls-size-") as scratch:
            self.export(fitted, Path(scratch), threads=1)
            return self.size(Path(scratch))

    def trees(self, folder: Path) -> treelite.Model | None:  # noqa: ARG002
        """Return the trees of a model that consists of trees; the report then describes their size."""
        return None

    # -- before Triton loads a model -------------------------------------------------------------------------

    @abstractmethod
    def inspect(self, folder: Path) -> dict[str, Any]:
        """Read a model's files; return its ``task``, and its numbers of ``features`` and ``classes``.

        A damaged file can crash or hang Triton. So this runs first, in a process with limits on time and
        memory, and whatever it raises keeps the model from Triton. A regression has one class.
        """

    def recorded_hashes(self, model_json: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the SHA-256 of each file by the content of ``model.json``."""
        hashes: Mapping[str, str] = model_json.get("sha256", {})
        return hashes

    def size(self, folder: Path) -> int:
        """Return the size of the model's files in a folder, in bytes."""
        return sum((folder / file).stat().st_size for file in self.files)

    def size_hint(self, folder: Path, size: int, limit: int) -> str:  # noqa: ARG002
        """Return what makes a model smaller, if it exceeds the limit of the server."""
        return ""

    # -- in Triton -------------------------------------------------------------------------------------------

    def config(
        self,
        name: str,
        shape: ModelShape,
        *,
        versions: Sequence[int],
        kind: InstanceKind = "KIND_AUTO",
        scaling: Scaling = SIMPLEST,
    ) -> str:
        """Return ``config.pbtxt`` of the model ``name``; Triton ignores all versions but ``versions``."""
        return model_config(
            name,
            self.backend,
            shape,
            versions=versions,
            kind=kind,
            scaling=scaling,
            parameters=self.parameters(shape),
        )

    def parameters(self, shape: ModelShape) -> Mapping[str, str]:  # noqa: ARG002
        """Return the backend's own parameters in ``config.pbtxt``."""
        return {}

    def code(self) -> Mapping[str, str]:
        """Return files that are written next to the model's in Triton, by name.

        A model for Triton's Python backend has ``model.py`` here: code comes from the publisher's
        installation, not from the trainer.
        """
        return {}

    def stand_in(self) -> Mapping[str, Path]:
        """Return the files of a stand-in for ``backend`` on the embedded platform, by name.

        Its server has Python, NumPy and Treelite. Without files, the server must have the backend.
        """
        return {}

    def describe_backend(self, kind: BackendKind) -> str:
        """Return what answered the golden rows, in words."""
        return {
            "genuine": f"Triton's {self.backend} backend",
            "stand-in": f"stand-in for Triton's {self.backend} backend",
            "shared": "process that small models share",
        }[kind]

    def rows_that_differ(
        self,
        expected: NDArray[Any],
        answers: NDArray[Any],
        *,
        classification: bool,
        tolerance: float,
    ) -> NDArray[np.intp]:
        """Return the golden rows whose answers, (n_rows, n_outputs), differ from the expected ones."""
        return rows_that_differ(expected, answers, classification=classification, tolerance=tolerance)

    # -- elsewhere -------------------------------------------------------------------------------------------

    def load(self, folder: Path, *, threads: int = -1) -> Predict:
        """Read a model's files and return a function that predicts with them, on ``threads`` (-1: all)."""
        predict: Predict = import_module(self.predictor).load_model(folder, threads=threads)
        return predict

    def write_onnx(self, folder: Path, path: Path, metadata: Mapping[str, str]) -> float:  # noqa: ARG002
        """Write a model as one ONNX file; return the largest difference on the golden rows."""
        raise UserError(
            ValidationIssue(
                f"models of the serving format {self.name!r} cannot be exported as ONNX",
                hint="export a Triton repository: --target triton",
            )
        )


class UnregisteredFormat(ServingFormat):
    """A format that no installed package registers: its models are trained, and not deployed."""

    backend = ""
    files = ()
    predictor = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def inspect(self, folder: Path) -> dict[str, Any]:
        """Refuse: nothing can read the files."""
        raise _unregistered(self.name, str(folder))


def export_format(name: str) -> ServingFormat:
    """Return the format that an engine exports its models in, whether or not a package serves it."""
    return serving_format(name) if name in extensions.names(_GROUP) else UnregisteredFormat(name)


def serving_format(name: str, model: str = "the model") -> ServingFormat:
    """Return a registered format; ``model`` has it.

    Raises:
        UserError: no installed package registers the format.
        PlatformError: its module cannot be imported.
    """
    if name not in extensions.names(_GROUP):
        raise _unregistered(name, model)
    serving: ServingFormat = extensions.load(_GROUP, name)()
    return serving


def format_of(model_json: Mapping[str, Any], model: str = "the model") -> ServingFormat:
    """Return the format that the content of ``model.json`` names.

    Raises:
        UserError: no installed package registers the format.
    """
    return serving_format(str(model_json.get("format", _DEFAULT_FORMAT)), model)


def in_process_code(formats: Iterable[ServingFormat]) -> dict[str, str]:
    """Return the modules with which a table endpoint predicts itself, by the names of their formats."""
    return {one.name: module_source(one.in_process).read_text("utf-8") for one in formats if one.in_process}


def module_source(module: str) -> Path:
    """Return the file of a module that is copied to where DMLS is not installed."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin)


def _unregistered(name: str, model: str) -> UserError:
    return UserError(
        ValidationIssue(
            f"{model} has the format {name!r}, which no installed package serves",
            expected=f"one of: {', '.join(extensions.names(_GROUP))}",
            hint=f"install the package that registers it under {_GROUP}, or set [deploy] mode to never",
        )
    )
