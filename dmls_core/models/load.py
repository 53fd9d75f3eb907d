"""Load ``spec.toml`` and changes of a single run, checked against the catalogue and the engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dmls_core import extensions
from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.models.catalogue import CATALOGUE, engine_class
from dmls_core.models.engines.base import SAME, Argument
from dmls_core.models.metrics import METRICS, metrics_of
from dmls_core.settings import SpecLimits
from dmls_core.spec import Choice, Hyperparameter, IssueCollector, ModelDefinition, Range, Spec, parse_spec
from dmls_core.spec.definitions import HyperparameterDefinition
from dmls_core.spec.parse import Changes, changed_document, check_document, read_table
from dmls_core.spec.positions import Path
from dmls_core.spec.toml_io import inspect_values


def for_engine(
    model: ModelDefinition,
    hyperparameters: Mapping[str, Hyperparameter],
    device: str,
    *,
    weighted: bool = False,
) -> dict[str, Hyperparameter]:
    """Return the space that the model's engine on ``device`` searches.

    Values with the same effect become one (``log_loss`` is ``entropy`` in cuML). Hyperparameters that the
    engine lacks are left out if they are fixed at their defaults.

    Raises:
        SpecError: the device has no engine for the model, or the engine does not support a hyperparameter, or
            rows that are ``weighted``.
    """
    issues = IssueCollector("", None, SpecLimits())
    _note_unsupported(model, hyperparameters, device, issues, weighted=weighted)
    issues.raise_any()
    arguments = engine_class(device, model.name).arguments
    return {
        name: _without_aliases(arguments.get(name, SAME), space)
        for name, space in hyperparameters.items()
        if not arguments.get(name, SAME).unsupported
    }


def _note_unsupported(
    model: ModelDefinition,
    hyperparameters: Mapping[str, Hyperparameter],
    device: str,
    issues: IssueCollector,
    *,
    weighted: bool = False,
) -> None:
    """Note everything in a search space that the engine on ``device`` does not support."""
    if device not in model.engines:
        issues.add(
            ("resources", "engine"),
            f"{model.name} has no {device} engine",
            found=device,
            expected=" or ".join((*model.engines, "auto")),
        )
        return
    if weighted and not engine_class(device, model.name).sample_weights:
        _note_unweighted(model.name, device, issues)
    arguments = engine_class(device, model.name).arguments
    for name, space in hyperparameters.items():
        argument = arguments.get(name, SAME)
        path = issues.standing((model.name, name), (name,))
        if not argument.unsupported:
            _note_values(model.hyperparameters[name], argument, space, device, path, issues)
        elif space != Choice(values=(model.hyperparameters[name].default,)):
            issues.add(
                path,
                f"cannot be varied on the {device} engine: {argument.unsupported}",
                hint='leave it out, or write engine = "cpu" in [resources]',
            )


def _note_values(
    definition: HyperparameterDefinition,
    argument: Argument,
    space: Hyperparameter,
    device: str,
    path: Path,
    issues: IssueCollector,
) -> None:
    if argument.shares_only and _has_integers(space):
        issues.add(path, f"must be a share on the {device} engine", expected="a float above 0 up to 1.0")
    if isinstance(space, Range):
        return
    supported = [choice for choice in definition.choices if choice not in argument.unsupported_values]
    for index, value in enumerate(space.values):
        if value in argument.unsupported_values:
            issues.add(
                issues.standing((*path, "values", index), (*path, "value"), path),
                f"is not supported by the {device} engine",
                found=value,
                expected=", ".join(f'"{choice}"' for choice in supported),
            )


def _has_integers(space: Hyperparameter) -> bool:
    if isinstance(space, Range):
        return space.integer
    return any(type(value) is int for value in space.values)


def _without_aliases(argument: Argument, space: Hyperparameter) -> Hyperparameter:
    if not argument.aliases or isinstance(space, Range):
        return space
    return Choice(
        values=tuple(dict.fromkeys(argument.aliases.get(str(value), value) for value in space.values))
    )


def load_spec(
    source: bytes, file: str = "spec.toml", *, limits: SpecLimits | None = None, deploys: bool = True
) -> Spec:
    """Parse and validate a spec against the catalogue; by default with the environment's limits on its size.

    Without ``deploys``, ``[deploy]`` is ignored, and so models of any format are valid.

    Raises:
        SpecError: with every issue in file order. Features that are not available yet, or not on the
            requested engine, are reported once the spec is valid otherwise.
    """
    checks = _CHECKS if deploys else tuple(check for check in _CHECKS if check is not _check_served)
    return parse_spec(source, CATALOGUE, file=file, limits=limits, checks=checks)


def change_spec(spec: Spec, changes: dict[str, Any], file: str = "the run's configuration") -> RunChange:
    """Apply a user's changes for one run (see ``Changes``), and validate the result like a spec.

    Raises:
        SpecError: with every issue; ``file`` names the changes in messages.
    """
    limits = SpecLimits.from_environment()
    issues = IssueCollector(file, None, limits)
    inspect_values(changes, issues, limits)
    issues.raise_any()
    read = read_table(Changes, changes, ("run",), issues)
    issues.raise_any()
    if read is None:
        raise SpecError(ValidationIssue("is not a table of changes", file=file, key="run"))
    if not read.changes_spec:
        return RunChange(spec, deploy=read.deploy)
    top = changed_document(spec, read, issues)
    issues.raise_any()
    return RunChange(check_document(top, CATALOGUE, issues, limits, _CHECKS), deploy=read.deploy)


@dataclass(frozen=True, slots=True)
class RunChange:
    """A run's spec after a user's changes (or the job's own), and whether to deploy the run's model."""

    spec: Spec
    deploy: bool = False


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A valid setting that this release does not support yet; the reference of the spec lists it."""

    table: str
    key: str
    name: str
    hint: str
    used_by: Callable[[Spec], bool]


UNAVAILABLE = (
    Unavailable(
        "data", "partition", "partition", "leave it out", lambda spec: spec.data.partition is not None
    ),
    Unavailable(
        "resources", "gpus", "more than one GPU", "write 1", lambda spec: (spec.resources.gpus or 0) > 1
    ),
)


def _check_available(spec: Spec, issues: IssueCollector) -> None:
    for setting in UNAVAILABLE:
        if setting.used_by(spec):
            issues.add(
                (setting.table, setting.key), f"{setting.name} is not available yet", hint=setting.hint
            )


def _check_retrain(spec: Spec, issues: IssueCollector) -> None:
    new_data = spec.chosen_by_run or spec.data.source is not None
    if spec.drift and spec.drift.action == "retrain" and not new_data:
        issues.add(
            ("drift", "action"),
            "would train on the same data again: the job's data stays the same until it is uploaded again",
            found="retrain",
            expected="data by interval",
            hint="[data] path with {date}, [data.source], or [schedule] cron with [columns] time; otherwise "
            '"report"',
        )


def _check_trials(spec: Spec, issues: IssueCollector) -> None:
    if spec.n_trials < len(spec.models):
        issues.add(
            ("n_trials",),
            "is less than the number of models; each needs a trial",
            found=spec.n_trials,
            expected=f"at least {len(spec.models)}",
        )


def _check_weight(spec: Spec, issues: IssueCollector) -> None:
    if spec.columns.weight is None:
        return
    if not METRICS[spec.search.metric].weighted:
        weighted = [name for name, metric in metrics_of(spec.task).items() if metric.weighted]
        issues.add(
            ("search", "metric"),
            "does not support [columns] weight",
            found=spec.search.metric,
            expected=", ".join(weighted),
        )
    for search in spec.models if spec.resources.engine == "auto" else ():
        if not any(
            engine_class(device, search.name).sample_weights for device in CATALOGUE[search.name].engines
        ):
            _note_unweighted(search.name, "", issues)


def _note_unweighted(model: str, device: str, issues: IssueCollector) -> None:
    """Note that a model, or its engine on ``device``, does not take weights of rows."""
    where = f" on the {device} engine" if device else ""
    hint = "leave weight out, or choose another model or engine"
    issues.add(("columns", "weight"), f"is not supported by {model}{where}", hint=hint)


def _check_engine(spec: Spec, issues: IssueCollector) -> None:
    # "auto" chooses an engine that supports the spec.
    if spec.resources.engine == "auto":
        return
    weighted = spec.columns.weight is not None
    for search in spec.models:
        model = CATALOGUE[search.name]
        _note_unsupported(model, search.hyperparameters, spec.resources.engine, issues, weighted=weighted)


def _check_nodes(spec: Spec, issues: IssueCollector) -> None:
    path, nodes = ("resources", "nodes"), spec.resources.nodes
    if nodes == 1:
        return
    able = [name for name, model in CATALOGUE.items() if _is_distributed(model)]
    for search in spec.models:
        if search.name not in able:
            issues.add(
                path,
                f"above 1 is not supported by {search.name}",
                found=nodes,
                expected=f"1, or one of the models {', '.join(able)}",
                hint="leave out nodes: of data larger than memory, these models use as many rows as fit",
            )
    if spec.resources.engine == "gpu":
        issues.add(path, "above 1 is not supported by the gpu engine", found=nodes, hint='engine = "cpu"')
    if spec.search.ensemble is True:
        issues.add(path, "cannot be combined with [search] ensemble", found=nodes, expected="1")
    if spec.search.workers != 1:
        hint = "write workers = 1 in [search]: the nodes fit one trial after another, each together"
        issues.add(path, "cannot be combined with [search] workers", found=nodes, expected="1", hint=hint)


def _check_served(spec: Spec, issues: IssueCollector) -> None:
    """Note every model that could win the search and could not be deployed."""
    if spec.deploy.mode == "never":
        return
    served = extensions.names("dmls.serving_formats")
    for search in spec.models:
        for device in CATALOGUE[search.name].engines:
            exported = engine_class(device, search.name).export_format
            if spec.resources.engine in ("auto", device) and exported not in served:
                issues.add(
                    ("deploy", "mode"),
                    f"{search.name} can be trained, but not deployed: no installed package serves its "
                    f"format {exported!r}",
                    found=spec.deploy.mode,
                    expected=f'"never", or models of the formats {", ".join(served)}',
                    hint='write mode = "never" in [deploy], or ask the platform team for the package',
                )


def _is_distributed(model: ModelDefinition) -> bool:
    return "cpu" in model.engines and engine_class("cpu", model.name).distributed


_CHECKS = (
    _check_available,
    _check_weight,
    _check_engine,
    _check_trials,
    _check_retrain,
    _check_nodes,
    _check_served,
)
"""Checks of a spec that is valid otherwise."""
