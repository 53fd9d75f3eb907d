"""The reserved tables of a spec. The descriptions are what an editor shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from dmls_core.spec.base import Channel, Memory, Name, Names, Number, Table, Value, Window


class Columns(Table):
    """What each column of the data is for."""

    target: Name = Field(description="The column to predict.")
    features: Names = Field((), description="The columns to predict from; all others if left out.")
    categorical: Names = Field(
        (), description="Features that are categories even where they look like numbers."
    )
    drop: Names = Field((), description="Columns to leave out.")
    sensitive: Names = Field((), description="Features that are never written into the inference log.")
    id: Name | None = Field(None, description="The column that names a row; never a feature.")
    time: Name | None = Field(None, description="The column that says when a row was true.")
    weight: Name | None = Field(None, description="The column that says how much a row counts.")


class Data(Table):
    """Which of the dropped files hold the data, and how to read them."""

    path: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="File name or pattern beside the spec; needed where several data files lie there. "
        "{date}, {year}, {month}, {day} and {hour} make it a pattern of partitions.",
        examples=["train.csv", "part-*.parquet", "data/{date}.csv", "data/dt={date}/*.parquet"],
    )
    format: Literal["csv", "parquet"] | None = Field(
        None, description="Format of the files; told from their names if left out."
    )
    partition: Name | None = Field(
        None, description="The column, or part of the path, that data is partitioned by."
    )
    window: Window = Field(
        1,
        description="Intervals that a run trains on, its own the last of them; all takes every row until "
        "its interval's end.",
    )
    timeout: float = Field(
        86400,
        gt=0,
        le=30 * 86400,
        description="Seconds that a run waits for a partition that has not arrived.",
    )
    labels: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="Files beside the spec with the true targets of logged requests, which come later: the "
        "columns request_id, row if requests have several, and the target. Fields as in path.",
        examples=["labels.csv", "labels/{date}.csv"],
    )


MOST_TRIALS = 10_000


class EarlyStop(Table):
    """When a search ends before all its trials have been run: as soon as one of these holds."""

    trials: int | None = Field(
        None, ge=1, le=MOST_TRIALS, description="Trials in a row without a better score."
    )
    target: float | None = Field(None, description="A score that is good enough.")
    converged: int | None = Field(
        None, ge=2, le=MOST_TRIALS, description="How many of the best scores lie within `tolerance`."
    )
    tolerance: float = Field(
        0.0, ge=0, description="Scores no further apart than this count as equal, for `trials` as well."
    )

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if self.trials is None and self.target is None and self.converged is None:
            raise PydanticCustomError("no_rule", "says nothing: give trials, target or converged")
        return self


def _early_stop(value: object) -> object:
    """Take a bare number for that of the trials without a better score."""
    if type(value) is int and 1 <= value <= MOST_TRIALS:
        return {"trials": value}
    if value is None or isinstance(value, dict | EarlyStop):
        return value
    raise PydanticCustomError("early_stop", "must be a number of trials, or a table")


def _or_trials(schema: dict[str, Any]) -> None:
    schema["anyOf"].insert(0, {"type": "integer", "minimum": 1, "maximum": MOST_TRIALS})


class Search(Table):
    """How hyperparameters are searched."""

    strategy: Literal["auto", "tpe", "random", "grid", "halving", "cma-es"] = Field(
        "auto", description="How the next trial is chosen; auto takes what is best for the model."
    )
    metric: str = Field("", description="What a trial is scored by; accuracy or r2 if left out.")
    timeout: float | None = Field(
        None, gt=0, le=30 * 86400, description="Seconds after which no further trial is started."
    )
    workers: int = Field(1, ge=1, le=256, description="Trainers that share the search.")
    folds: int = Field(3, ge=2, le=20, description="Folds of the cross-validation that scores a trial.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of everything random.")
    early_stop: Annotated[EarlyStop | None, BeforeValidator(_early_stop)] = Field(
        None,
        description="Trials without a better score after which the search ends; or a table of rules.",
        json_schema_extra=_or_trials,
    )


class Evaluation(Table):
    """How the model is scored in the end, on rows that the search never saw."""

    holdout: float = Field(0.2, ge=0.01, le=0.9, description="Share of the rows that is held out.")
    split: Literal["stratified", "random", "time"] = Field(
        "stratified",
        description="How the held-out rows are chosen; stratified for classifiers and random for "
        "regressors if left out.",
    )


class ColumnExpectation(Table):
    """What the values of one column must be like."""

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
    unique: bool = Field(False, description="Whether no value may come twice.")


class Expectations(Table):
    """What the data must be like before anything is trained on it, beyond what the spec implies."""

    min_rows: int | None = Field(None, ge=1, description="Fewest rows allowed.")
    max_rows: int | None = Field(None, ge=1, description="Most rows allowed.")
    max_missing: float | None = Field(
        None, ge=0, le=1, description="Largest share of missing values allowed in any column used."
    )
    columns: dict[Name, ColumnExpectation] = Field(
        default_factory=dict, description="Expectations of single columns, by name."
    )


class Schedule(Table):
    """When the job trains by itself."""

    cron: str | None = Field(
        None,
        max_length=200,
        description="Five fields (minute, hour, day, month, weekday) or @hourly, @daily, @weekly, "
        "@monthly, @yearly.",
        examples=["@weekly", "0 6 * * 1"],
    )
    on: Literal["data"] | None = Field(None, description="data starts a run for each new partition.")
    catchup: bool = Field(False, description="Whether runs missed since the admission are made up for.")
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
        description="Seconds after which a run that has not ended is told of, over the channels of "
        "[owner] notify; counted from when it was queued.",
    )


class Deploy(Table):
    """What happens to a model that was trained."""

    mode: Literal["manual", "auto", "never"] = Field(
        "manual",
        description="manual waits for an approval; auto deploys a model that beats the present one, if "
        "there is one, on the same rows.",
    )
    min_metric: float | None = Field(None, description="The worst score that is still deployed.")
    min_improvement: float = Field(
        0.0,
        description="With auto: by how much the model must beat the present one on the same rows, with 95 % "
        "confidence, in units of the metric. Below 0: how much worse it may be at most.",
    )
    approval_timeout: float | None = Field(
        None,
        gt=0,
        le=365 * 86400,
        description="With manual: seconds after which an approval that nobody gave counts as declined.",
    )
    max_latency_ms: float | None = Field(
        None, gt=0, description="Slowest answer for one row that is still deployed, in milliseconds."
    )


class Drift(Table):
    """When incoming data counts as different from what was trained on."""

    threshold: float = Field(
        0.2, gt=0, le=10, description="Population stability index from which a column has drifted."
    )
    action: Literal["report", "retrain"] = Field(
        "report", description="What drift does besides being reported; retrain starts a new run."
    )
    sample: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of the rows asked of the table endpoint that are logged, to be compared.",
    )


class Resources(Table):
    """What a run may use."""

    engine: Literal["auto", "cpu", "gpu"] = Field(
        "auto", description="What fits the models; auto is gpu where the runner has one, else cpu."
    )
    gpus: int | None = Field(None, ge=0, le=64, description="GPUs; one on the gpu engine if left out.")
    memory: Memory | None = Field(
        None, description="Memory that a trainer may take, 64 MiB or more.", examples=["8 GiB", "512m"]
    )


class Owner(Table):
    """Whom to ask about the job."""

    name: str | None = Field(None, min_length=1, max_length=200, description="A person or a team.")
    email: str | None = Field(
        None, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$", description="Where to reach them."
    )
    notify: Annotated[tuple[Channel, ...], Field(strict=False)] = Field(
        (),
        max_length=10,
        description="Channels to notify of what becomes of the job: email, slack, webhook or another "
        "installed notifier; after a colon, the name of its connection.",
        examples=[["email"], ["webhook:alerts"]],
    )
