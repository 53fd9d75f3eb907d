"""The tables of a spec; editors show their descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from dmls_core import extensions
from dmls_core.spec.data_table import Data, SpecTable
from dmls_core.spec.values import (
    AUTO_WORKERS,
    Channel,
    Combined,
    Memory,
    Name,
    Names,
    Number,
    Value,
    Workers,
)


class Columns(SpecTable):
    """The roles of the data's columns."""

    target: Name = Field(description="The column to predict.")
    features: Names = Field((), description="The columns to predict from; by default all others.")
    categorical: Names = Field((), description="Features that are categories even if they look like numbers.")
    dates: Names = Field((), description="Features that are dates, with or without a time.")
    date_order: Literal["year-first", "day-first", "month-first"] = Field(
        "year-first", description="Order of the parts of dates; 2026-01-31 is always read."
    )
    drop: Names = Field((), description="Columns to ignore.")
    sensitive: Names = Field((), description="Features that are never written into the inference log.")
    id: Name | None = Field(None, description="The column that identifies a row; never a feature.")
    time: Name | None = Field(
        None, description="The column with the time of a row; a feature only if dates lists it."
    )
    group: Name | None = Field(
        None, description="The column with the group of a row, such as a customer; no split divides a group."
    )
    weight: Name | None = Field(
        None, description="The column with the weight of a row, 0 or more, in the fit and in every metric."
    )


_MOST_TRIALS = 10_000


class EarlyStop(SpecTable):
    """When a search ends before its last trial: as soon as one of the rules holds."""

    trials: int | None = Field(
        None, ge=1, le=_MOST_TRIALS, description="Consecutive trials without a better score."
    )
    target: float | None = Field(None, description="Score at which the search ends.")
    converged: int | None = Field(
        None, ge=2, le=_MOST_TRIALS, description="Number of best scores that must be within `tolerance`."
    )
    tolerance: float = Field(
        0.0, ge=0, description="Largest difference between scores that count as equal, also for `trials`."
    )

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if self.trials is None and self.target is None and self.converged is None:
            raise PydanticCustomError("no_rule", "has no rule: set trials, target or converged")
        return self


def _early_stop(value: object) -> object:
    """Convert a plain number to the rule ``trials``."""
    if type(value) is int and 1 <= value <= _MOST_TRIALS:
        return {"trials": value}
    if value is None or isinstance(value, dict | EarlyStop):
        return value
    raise PydanticCustomError("early_stop", "must be a number of trials, or a table")


def _or_trials(schema: dict[str, Any]) -> None:
    schema["anyOf"].insert(0, {"type": "integer", "minimum": 1, "maximum": _MOST_TRIALS})


def _strategies(schema: dict[str, Any]) -> None:
    schema["enum"] = list(extensions.names("dmls.samplers"))


class Search(SpecTable):
    """The search for hyperparameters."""

    strategy: str = Field(
        "auto",
        description="How the next trial is chosen; auto selects the best one for the model.",
        json_schema_extra=_strategies,
    )
    metric: str = Field("", description="The metric of a trial; by default accuracy or r2.")
    timeout: float | None = Field(
        None,
        gt=0,
        le=30 * 86400,
        description="Seconds after which no further trial starts, and running ones end soon.",
    )
    workers: Workers = Field(
        1, description=f"Trainers that share the search; auto: up to {AUTO_WORKERS}, while no run waits."
    )
    folds: int = Field(
        3,
        ge=2,
        le=20,
        description="Folds of the cross-validation; with many rows, only the first are scored.",
    )
    ensemble: Combined = Field(
        False,
        description="Whether the mean of the best trials is the model, if better; auto: the mean of the best "
        "trials of several boosted models.",
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of all random numbers.")
    early_stop: Annotated[EarlyStop | None, BeforeValidator(_early_stop)] = Field(
        None,
        description="Consecutive trials without a better score after which the search ends; or a table.",
        json_schema_extra=_or_trials,
    )

    @property
    def max_workers(self) -> int:
        """Most trainers that share the search."""
        return AUTO_WORKERS if self.workers == "auto" else int(self.workers)


class Evaluation(SpecTable):
    """The final score, on rows that the search never uses."""

    holdout: float = Field(0.2, ge=0.01, le=0.9, description="Share of the rows that is held out.")
    split: Literal["stratified", "random", "time"] = Field(
        "stratified",
        description="How the held-out rows are chosen; by default stratified for classifiers and random for "
        "regressors and with [columns] group. time holds out the latest rows, by [columns] time.",
    )
    group_duplicates: bool = Field(
        False, description="Whether rows with the same features stay on one side of every split."
    )


class ColumnExpectation(SpecTable):
    """Expectations of one column."""

    min: Number | None = Field(None, description="Smallest value allowed.")
    max: Number | None = Field(None, description="Largest value allowed.")
    values: Annotated[tuple[Value, ...], Field(strict=False)] | None = Field(
        None, min_length=1, description="All values allowed."
    )
    pattern: str | None = Field(
        None, min_length=1, max_length=500, description="Regular expression that each value must match."
    )
    max_missing: float | None = Field(
        None, ge=0, le=1, description="Largest share of missing values allowed."
    )
    unique: bool = Field(False, description="Whether all values must be distinct.")


class Expectations(SpecTable):
    """Expectations of the data, beyond those that follow from the spec."""

    min_rows: int | None = Field(None, ge=1, description="Fewest rows allowed.")
    max_rows: int | None = Field(None, ge=1, description="Most rows allowed.")
    max_missing: float | None = Field(
        None, ge=0, le=1, description="Largest share of missing values allowed in any column used."
    )
    columns: dict[Name, ColumnExpectation] = Field(
        default_factory=dict, description="Expectations of single columns, by name."
    )


class Schedule(SpecTable):
    """When the job runs automatically."""

    cron: str | None = Field(
        None,
        max_length=200,
        description="Five fields (minute, hour, day, month, weekday) or @hourly, @daily, @weekly, "
        "@monthly, @yearly.",
        examples=["@weekly", "0 6 * * 1"],
    )
    on: Literal["data"] | None = Field(None, description="data starts a run for each new partition.")
    catchup: bool = Field(False, description="Whether missed intervals since the admission are run.")
    timezone: str = Field(
        "UTC",
        max_length=64,
        description="Time zone of cron, of dates in file names and of times without one, such as "
        "Europe/Vienna.",
    )
    jitter: float = Field(
        300,
        ge=0,
        le=86400,
        description="Seconds over which the starts of all jobs are spread; a job keeps its delay.",
    )
    deadline: float | None = Field(
        None,
        gt=0,
        le=30 * 86400,
        description="Seconds after which an unfinished run is reported to the channels of [owner] notify, "
        "counted from when it was queued.",
    )


class Deploy(SpecTable):
    """What happens to a trained model."""

    mode: Literal["manual", "auto", "never"] = Field(
        "manual",
        description="manual waits for an approval; auto deploys a model that beats the champion, if there "
        "is one, on the same rows.",
    )
    min_metric: float | None = Field(None, description="The worst score that is deployed.")
    min_improvement: float = Field(
        0.0,
        description="With auto: improvement over the champion on the same rows, with 95 % confidence, in "
        "units of the metric. A negative value allows a worse model.",
    )
    approval_timeout: float | None = Field(
        None,
        gt=0,
        le=365 * 86400,
        description="With manual: seconds after which a missing approval counts as declined.",
    )
    max_latency_ms: float | None = Field(
        None, gt=0, description="Highest latency for one row that is deployed, in milliseconds."
    )
    compact: bool = Field(
        False,
        description="Whether a model is reduced to the trees, and a forest to the depth, that lose nothing "
        "measurable.",
    )


class Drift(SpecTable):
    """When incoming data counts as different from the training data."""

    threshold: float = Field(
        0.2, gt=0, le=10, description="Population stability index from which a column has drifted."
    )
    action: Literal["report", "retrain"] = Field(
        "report", description="What happens on drift besides the report; retrain starts a run."
    )
    sample: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of the rows sent to the table endpoint that are logged for comparison.",
    )


class Resources(SpecTable):
    """The resources of a run."""

    engine: Literal["auto", "cpu", "gpu"] = Field(
        "auto", description="Device that fits the models; auto is gpu if the runner has one, else cpu."
    )
    gpus: int | None = Field(None, ge=0, le=64, description="Number of GPUs; by default 1 on the gpu engine.")
    memory: Memory | None = Field(
        None, description="Memory limit of a trainer or node, at least 64 MiB.", examples=["8 GiB", "512m"]
    )
    nodes: int = Field(1, ge=1, description="Nodes that divide the rows and fit together; `cpu` engine only.")


class Owner(SpecTable):
    """The owner of the job."""

    name: str | None = Field(None, min_length=1, max_length=200, description="A person or a team.")
    email: str | None = Field(
        None, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$", description="Address of the owner."
    )
    notify: Annotated[tuple[Channel, ...], Field(strict=False)] = Field(
        (),
        max_length=10,
        description="Channels for notifications about the job: email, slack, webhook or another installed "
        "notifier; after a colon, the name of its connection.",
        examples=[["email"], ["webhook:alerts"]],
    )


KEYS = ("model", "n_trials")
"""Keys that are not tables."""

TABLES: Mapping[str, type[SpecTable]] = MappingProxyType(
    {
        "columns": Columns,
        "data": Data,
        "search": Search,
        "evaluation": Evaluation,
        "expectations": Expectations,
        "schedule": Schedule,
        "deploy": Deploy,
        "drift": Drift,
        "resources": Resources,
        "owner": Owner,
    }
)
"""Tables with fixed keys."""

TAGS = "tags"
"""The table whose keys are the user's."""

RESERVED = (*KEYS, *TABLES, TAGS)
