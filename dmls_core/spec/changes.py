"""What a user may change of a spec for one run, without changing the job's."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dmls_core.spec.base import Table, Window
from dmls_core.spec.findings import Findings
from dmls_core.spec.model import Spec
from dmls_core.spec.reserved import RESERVED


class DataChanges(Table):
    """Other data for one run; keys as in ``[data]``."""

    path: str | None = Field(None, min_length=1, max_length=512, description="File name or pattern.")
    window: Window = Field(None, validate_default=False, description="Intervals that the run trains on.")


class Changes(Table):
    """What is different in one run."""

    deploy: bool = Field(
        False, description="Whether the model is to be deployed even if it is older or no better."
    )
    n_trials: Any = Field(None, description="Trials in all.")
    seed: Any = Field(None, description="Seed of everything random.")
    data: DataChanges | None = Field(None, description="Other data: path, window.")
    hyperparameters: dict[str, Any] = Field(
        default_factory=dict, description="Hyperparameters as a spec's tables write them, by name."
    )

    @property
    def changes_spec(self) -> bool:
        """Whether anything of the spec is different."""
        return bool(
            self.new_data or self.hyperparameters or self.n_trials is not None or self.seed is not None
        )

    @property
    def new_data(self) -> dict[str, Any]:
        """The keys of ``[data]`` that are different."""
        return self.data.model_dump(exclude_none=True) if self.data else {}


def changed_document(spec: Spec, changes: Changes, findings: Findings) -> dict[str, Any]:
    """Return the tables of a ``spec.toml`` that means ``spec`` with ``changes``; it is still to be validated.

    Args:
        spec: an accepted spec.
        changes: hyperparameters may stand by their names or, of one of several models, below the model's.
        findings: takes what cannot even be written down.
    """
    top = as_document(spec)
    for name, table in changes.hyperparameters.items():
        own = top.get(name) if any(model.name == name for model in spec.models) else None
        if own is not None and isinstance(table, dict):
            own.update(table)
        elif name in RESERVED:
            hint = "n_trials, seed and data have keys of their own beside hyperparameters"
            findings.add(("hyperparameters", name), "is not a hyperparameter", hint=hint)
        else:
            for model in spec.models:
                top[model.name].pop(name, None)
            top[name] = table
    if changes.n_trials is not None:
        top["n_trials"] = changes.n_trials
    if changes.seed is not None:
        top["search"]["seed"] = changes.seed
    top["data"] |= changes.new_data
    return top


def as_document(spec: Spec) -> dict[str, Any]:
    """Return the tables of a ``spec.toml`` that means the same as ``spec``."""
    written = spec.model_dump(mode="json", exclude_none=True, exclude={"task", "models"})
    models = {
        model.name: {
            name: space.model_dump(mode="json", exclude_none=True)
            for name, space in model.hyperparameters.items()
        }
        for model in spec.models
    }
    # A list that names nothing is left out of a spec.
    written["columns"] = {key: value for key, value in written["columns"].items() if value != []}
    return {"model": list(models), **written, **models}
