"""The validated spec, with every default."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from pydantic import Field, ValidationError

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.spec.data_table import Data, Source, SpecTable
from dmls_core.spec.definitions import Choice, Hyperparameter, Range, Scalar, Task, fixed
from dmls_core.spec.issues import describe, dotted
from dmls_core.spec.partitions import PartitionPattern, has_fields, parse_names, parse_pattern
from dmls_core.spec.tables import (
    Columns,
    Deploy,
    Drift,
    Evaluation,
    Expectations,
    Owner,
    Resources,
    Schedule,
    Search,
)

SCHEMA = 1
"""Version of the JSON form of a spec."""

ADDED = (
    ("deploy", "compact"),
    ("search", "ensemble"),
    *(("columns", key) for key in ("dates", "date_order", "group")),
    ("evaluation", "group_duplicates"),
    ("resources", "nodes"),
    *(
        ("data", key)
        for key in (
            *("delimiter", "decimal", "thousands", "encoding", "header", "skip_rows", "sheet"),
            *("missing", "not_missing", "numbers", "source"),
        )
    ),
)
"""Keys that were added without a new ``SCHEMA``: a spec that does not set them keeps its hash."""


class ModelSearch(SpecTable):
    """A model and the space of each of its hyperparameters, including fixed ones."""

    name: str
    hyperparameters: dict[str, Hyperparameter]

    @property
    def searched(self) -> dict[str, Range | Choice]:
        """The hyperparameters with more than one value, by name."""
        return {name: space for name, space in self.hyperparameters.items() if name not in self.fixed}

    @property
    def fixed(self) -> dict[str, Scalar]:
        """The value of each hyperparameter that has only one, by name."""
        return fixed(self.hyperparameters)


class Spec(SpecTable):
    """A validated spec. Two specs are equivalent if and only if their ``sha256`` is the same.

    Attributes:
        task: of all its models.
        models: at least one; the best of them wins.
        n_trials: total number of trials, as Optuna counts them.
    """

    task: Task
    models: Annotated[tuple[ModelSearch, ...], Field(strict=False, min_length=1)]
    n_trials: Annotated[int, Field(ge=1)]
    columns: Columns
    data: Data = Data()
    search: Search = Search()
    evaluation: Evaluation = Evaluation()
    expectations: Expectations = Expectations()
    schedule: Schedule | None = None
    deploy: Deploy = Deploy()
    drift: Drift | None = None
    resources: Resources = Resources()
    owner: Owner = Owner()
    tags: dict[str, str] = Field(default_factory=dict)

    @property
    def model(self) -> str:
        """The name of the only model; raises ``ValueError`` if there are several."""
        (model,) = self.models
        return model.name

    @property
    def partitions(self) -> PartitionPattern | None:
        """The pattern of ``[data] path``, or of its source, if it has fields."""
        path = self.data.pattern
        return parse_pattern(path) if path is not None and has_fields(path) else None

    def means_labels(self, name: str) -> bool:
        """Return whether ``[data] labels`` matches a file, given its path below the spec's folder."""
        labels = self.data.labels
        return labels is not None and parse_names(labels)[1].fullmatch(name) is not None

    @property
    def chosen_by_run(self) -> bool:
        """Whether each run selects its data by an interval, instead of using the admitted files."""
        on = self.schedule.on if self.schedule else None
        return on is None and (self.partitions is not None or self.schedule is not None)

    @property
    def timezone(self) -> str:
        """Time zone of the schedule, of dates in file names and of times without one."""
        return self.schedule.timezone if self.schedule else "UTC"

    def as_json(self) -> dict[str, Any]:
        """Return the spec as plain JSON data, with every default but those of ``ADDED``."""
        data = self.model_dump(mode="json")
        for table, key in ADDED:
            table_model = getattr(self, table)
            if getattr(table_model, key) == type(table_model).model_fields[key].get_default(
                call_default_factory=True
            ):
                del data[table][key]
        if source := data["data"].get("source"):
            data["data"]["source"] = {
                key: value for key, value in source.items() if value is not None or key not in Source.ADDED
            }
        return {"schema": SCHEMA, **data}

    def canonical(self) -> bytes:
        """Return the canonical JSON of this spec: sorted, compact, ASCII."""
        text = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return text.encode()

    @property
    def sha256(self) -> str:
        """Hash of the canonical JSON, 64 hexadecimal digits."""
        return hashlib.sha256(self.canonical()).hexdigest()

    @classmethod
    def from_json(cls, data: dict[str, Any], file: str = "spec.json") -> Spec:
        """Return the spec of ``as_json``; raise ``SpecError`` for other objects and later releases."""
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA or isinstance(schema, bool):
            raise SpecError(
                ValidationIssue(
                    "is not a spec that this release can read",
                    file=file,
                    key="schema",
                    found=describe(schema),
                    expected=str(SCHEMA),
                )
            )
        try:
            return cls.model_validate({key: value for key, value in data.items() if key != "schema"})
        except ValidationError as error:
            raise SpecError(
                [
                    ValidationIssue(
                        issue["msg"],
                        file=file,
                        key=dotted(issue["loc"]),
                        found=describe(issue["input"]),
                    )
                    for issue in error.errors(include_url=False)
                ]
            ) from None
