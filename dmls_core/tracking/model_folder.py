"""Log a run's ``model/`` folder as an MLflow model: without pickle, with code and data in separate files."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.data.encoder import Encoder, NumberFeature, number
from dmls_core.serving.formats.base import format_of, module_source
from dmls_core.tracking.registry import own_tags

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.models import Model, ModelSignature

LOGGED_NAME = "model"
CODE_PACKAGE = "dmls_model"
REQUIRED = ("mlflow", "numpy", "pandas")
"""Packages that load a logged model, besides those of its serving format."""

EXAMPLE_ROWS = 3
ARTIFACTS = {
    "encoder": "encoder.json",
    "model": "model.json",
    "card": "card.html",
    "golden": "golden.json",
    "baseline": "baseline.json",
    "size": "size.json",
    "signature": "model.sig",
}
"""Files of a run's ``model/`` folder in the MLflow model, besides those of its serving format.

Together they are all that are signed.
"""


def log_model(client: MlflowClient, run: Run, folder: Path, versions: Mapping[str, str]) -> str:
    """Upload the ``model/`` folder of ``run`` and return the model's id; an interrupted upload is repeated.

    ``versions`` are those of the libraries at the training.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model

    model = _logged(client, run) or client.create_logged_model(
        run.info.experiment_id, name=LOGGED_NAME, source_run_id=run.info.run_id, tags=own_tags(run)
    )
    if model.status != LoggedModelStatus.READY:
        mlflow_model = Model(
            artifact_path=model.artifact_location, run_id=run.info.run_id, model_id=model.model_id
        )
        with built_model(folder, mlflow_model, versions) as built:
            client.log_model_artifacts(model.model_id, str(built))
        outputs = client.get_run(run.info.run_id).outputs
        if not (outputs and any(output.model_id == model.model_id for output in outputs.model_outputs)):
            client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, 0)])
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return str(model.model_id)


def _logged(client: MlflowClient, run: Run) -> LoggedModel | None:
    models = client.search_logged_models(
        [run.info.experiment_id], filter_string=f"source_run_id = '{run.info.run_id}'"
    )
    return models[0] if models else None


_COPIED = {
    "dmls_core.data": ("encoder.py", "moments.py", "row_notes.py"),
    "dmls_core.serving.deployment": ("signature.py",),
}
"""Modules that a logged model has copies of, by package."""

PREDICTOR = "predictor.py"
"""Copy of the module that predicts with a model of its serving format."""


@contextmanager
def built_model(folder: Path, mlflow_model: Model, versions: Mapping[str, str]) -> Iterator[Path]:
    """Yield a temporary folder from which MLflow loads the model of a run's ``model/`` folder.

    ``mlflow_model`` has the model's id and run in MLflow; ``versions`` are those of the libraries that
    trained it.
    """
    import mlflow.pyfunc

    encoder = Encoder.from_json(json.loads((folder / "encoder.json").read_bytes()))
    golden = json.loads((folder / "golden.json").read_bytes())
    serving = format_of(json.loads((folder / "model.json").read_bytes()))
    files = {Path(file).stem: file for file in serving.files} | ARTIFACTS
    with tempfile.TemporaryDirectory(prefix="dmls-model-") as scratch, _without_remarks():
        code = Path(scratch) / CODE_PACKAGE
        code.mkdir()
        (code / "__init__.py").touch()
        for package, modules in _COPIED.items():
            for module in modules:
                (code / module).write_bytes((resources.files(package) / module).read_bytes())
        (code / PREDICTOR).write_bytes(module_source(serving.predictor).read_bytes())
        mlflow.pyfunc.save_model(
            path=Path(scratch) / "model",
            mlflow_model=mlflow_model,
            python_model=Path(__file__).with_name("pyfunc_model.py"),
            code_paths=[str(code)],
            artifacts={name: str(folder / file) for name, file in files.items() if (folder / file).is_file()},
            signature=signature(encoder),
            input_example=example(encoder, golden["columns"]),
            pip_requirements=requirements(versions, serving.packages),
        )
        yield Path(scratch) / "model"


def signature(encoder: Encoder) -> ModelSignature:
    """Return the signature: the user's columns, and the prediction's.

    Columns are required but of any type. MLflow rejects integers (``int64``) if a signature says ``double``,
    and numbers if it says ``string``; the types in a frame read from a CSV depend on its rows. The encoder
    checks the values itself.
    """
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, DataType, ParamSchema, ParamSpec, Schema

    labels = encoder.target.labels
    outputs = {"prediction": "float" if labels is None else "string"}
    outputs |= {f"probability_{label}": "float" for label in labels or ()}
    return ModelSignature(
        inputs=Schema([ColSpec(AnyType(), name) for name in encoder.feature_names]),  # type: ignore[no-untyped-call]
        outputs=Schema([ColSpec(column_type, name) for name, column_type in outputs.items()]),
        params=ParamSchema([ParamSpec("strict", DataType.boolean, default=False)]),
    )


def example(encoder: Encoder, columns: Mapping[str, list[Any]]) -> pd.DataFrame:
    """Return the first golden rows as a user's frame would hold them."""
    import pandas as pd

    rows: dict[str, list[Any]] = {}
    for feature in encoder.features:
        values = columns[feature.name][:EXAMPLE_ROWS]
        rows[feature.name] = [number(v) for v in values] if isinstance(feature, NumberFeature) else values
    return pd.DataFrame(rows)


def requirements(versions: Mapping[str, str], packages: Sequence[str]) -> list[str]:
    """Return the packages needed to load the model, in their versions at the training, or those installed.

    ``packages`` are those of the model's serving format.
    """
    from mlflow.version import VERSION

    pinned = {"mlflow": VERSION, **versions}
    return [f"{name}=={pinned.get(name) or version(name)}" for name in (*REQUIRED, *packages)]


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Silence MLflow's log messages about its steps, pip and conda."""
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
