"""The reserved tables of a spec. The descriptions are what an editor shows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dmls_core.spec.base import Memory, Name, Names, Number, Table, Value


class Columns(Table):
    """What each column of the data is for."""

    target: Name = Field(description="The column to predict.")
    features: Names = Field((), description="The columns to predict from; all others if left out.")
    categorical: Names = Field(
        (), description="Features that are categories even where they look like numbers."
    )
    drop: Names = Field((), description="Columns to leave out.")
    id: Name | None = Field(None, description="The column that names a row; never a feature.")
    time: Name | None = Field(None, description="The column that says when a row was true.")
    weight: Name | None = Field(None, description="The column that says how much a row counts.")


class Data(Table):
    """Which of the dropped files hold the data, and how to read them."""

    path: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="File name or pattern beside the spec; all *.csv and *.parquet files if left out.",
        examples=["train.csv", "part-*.parquet"],
    )
    format: Literal["csv", "parquet"] | None = Field(
        None, description="Format of the files; told from their names if left out."
    )
    partition: Name | None = Field(
        None, description="The column, or part of the path, that data is partitioned by."
    )


class Search(Table):
    """How hyperparameters are searched."""

    strategy: Literal["auto", "tpe", "random", "grid", "nested"] = Field(
        "auto", description="How the next trial is chosen; auto takes what is best for the model."
    )
    metric: str = Field("", description="What a trial is scored by; accuracy or r2 if left out.")
    timeout: float | None = Field(
        None, gt=0, le=30 * 86400, description="Seconds after which no further trial is started."
    )
    workers: int = Field(1, ge=1, le=256, description="Trainers that share the search.")
    folds: int = Field(3, ge=2, le=20, description="Folds of the cross-validation that scores a trial.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of everything random.")
    early_stop: int | None = Field(
        None, ge=1, le=10_000, description="Trials without a better score after which the search ends."
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

    cron: str = Field(
        max_length=200,
        description="Five fields (minute, hour, day, month, weekday) or @hourly, @daily, @weekly, "
        "@monthly, @yearly.",
        examples=["@weekly", "0 6 * * 1"],
    )
    catchup: bool = Field(False, description="Whether runs missed since the admission are made up for.")
    timezone: str = Field("UTC", max_length=64, description="Time zone of cron, such as Europe/Vienna.")


class Deploy(Table):
    """What happens to a model that was trained."""

    mode: Literal["manual", "auto", "never"] = Field(
        "manual",
        description="manual waits for an approval; auto deploys a model that beats the present one.",
    )
    min_metric: float | None = Field(None, description="The worst score that is still deployed.")
    max_latency_ms: float | None = Field(
        None, gt=0, description="Slowest answer for one row that is still deployed, in milliseconds."
    )


class Drift(Table):
    """When incoming data counts as different from what was trained on."""

    threshold: float = Field(
        0.2, gt=0, le=10, description="Population stability index from which a column has drifted."
    )
    retrain: bool = Field(False, description="Whether drift starts a new run.")


class Resources(Table):
    """What a run may use."""

    engine: Literal["auto", "cpu", "gpu"] = Field(
        "auto", description="What fits the models; auto is gpu where the runner has one, else cpu."
    )
    gpus: int | None = Field(None, ge=0, le=64, description="GPUs; one on the gpu engine if left out.")
    memory: Memory | None = Field(None, description="Memory that a trainer may take.")


class Owner(Table):
    """Whom to ask about the job."""

    name: str | None = Field(None, min_length=1, max_length=200, description="A person or a team.")
    email: str | None = Field(
        None, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$", description="Where to reach them."
    )
