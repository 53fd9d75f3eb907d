"""Rules between the keys of a spec that pydantic cannot express."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dmls_core import extensions
from dmls_core.settings import SpecLimits
from dmls_core.spec.cron import cron_issue
from dmls_core.spec.data_table import Data
from dmls_core.spec.definitions import ModelDefinition, Range, space_size
from dmls_core.spec.issues import IssueCollector, looks_bare, quoted
from dmls_core.spec.partitions import FIELDS, has_fields, parse_pattern
from dmls_core.spec.positions import Path
from dmls_core.spec.source_rules import check_source, check_source_intervals
from dmls_core.spec.spec import ModelSearch
from dmls_core.spec.tables import Columns, Evaluation, Expectations, Owner, Resources, Schedule, Search

_MOST_PATTERN = 10_000
"""Total length of all patterns; compiling takes up to a millisecond per character."""

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./ -]{0,99}")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")


def check_data(data: Data, issues: IssueCollector) -> None:
    """Check that data and labels are in the spec's folder, and that the keys on how text is written agree."""
    for key, path in (("path", data.path), ("labels", data.labels)):
        if path is not None:
            _check_path(key, path, issues)
    if data.source is not None:
        check_source(data.source, data, issues)
    if twice := [text for text in data.not_missing if text in data.missing]:
        issues.add(("data", "not_missing"), "is also in [data] missing", found=twice[0])
    if data.decimal == data.thousands:
        issues.add(("data", "thousands"), "is also the decimal mark", found=data.thousands)
    for name in data.numbers:
        decimal, thousands, _ = data.notation(name)
        if decimal == thousands:
            message, hint = "has one mark for decimals and thousands", 'set thousands = "" beside decimal'
            issues.add(("data", "numbers", name), message, found=decimal, hint=hint)
    if data.format and not data.is_plain and not extensions.load("dmls.formats", data.format).keys:
        hint = "remove the keys that say how text is written"
        issues.add(("data", "format"), "is not text", found=data.format, hint=hint)


def _check_path(key: str, path: str, issues: IssueCollector) -> None:
    parts = set(path.split("/"))
    if {"", ".", ".."} & parts or "\\" in path or not path.isprintable():
        issues.add(
            ("data", key),
            "must be in the spec's folder",
            found=path,
            expected="the name of a file in the same folder, or a pattern such as part-*.csv",
        )
    if has_fields(path):
        try:
            parse_pattern(path)
        except ValueError as error:
            fields = ", ".join(f"{{{field}}}" for field in FIELDS)
            folder = "data" if key == "path" else key
            issues.add(
                ("data", key),
                str(error),
                found=path,
                expected=f"fields from {fields}, from the coarsest to the finest without a gap",
                hint=f'such as "{folder}/{{date}}.csv" or "{folder}/dt={{date}}/*.parquet"',
            )


def check_expectations(expectations: Expectations, issues: IssueCollector) -> None:
    """Check the order of bounds and the regular expressions."""
    rows = ("expectations", "max_rows")
    _check_order(expectations.min_rows, expectations.max_rows, rows, "min_rows", issues)
    # Columns may share a pattern.
    patterns = {column.pattern for column in expectations.columns.values() if column.pattern}
    if (length := sum(map(len, patterns))) > _MOST_PATTERN:
        most = f"at most {_MOST_PATTERN:,} characters"
        issues.add(("expectations", "columns"), "has too much text in patterns", found=length, expected=most)
        return
    for name, column in expectations.columns.items():
        path: Path = ("expectations", "columns", name)
        _check_order(column.min, column.max, (*path, "max"), "min", issues)
        if column.pattern is None:
            continue
        if column.min is not None or column.max is not None:
            hint = "keep the bounds for numbers, or the pattern for text"
            issues.add(
                (*path, "pattern"), "cannot be combined with min or max: patterns are for text", hint=hint
            )
        try:
            re.compile(column.pattern)
        except (re.error, ValueError, RecursionError, OverflowError) as error:
            issues.add((*path, "pattern"), f"is not a regular expression: {error}", found=column.pattern)


def _check_order(
    low: float | None, high: float | None, path: Path, other: str, issues: IssueCollector
) -> None:
    if low is not None and high is not None and low > high:
        issues.add(path, f"is below {other}", found=high, expected=f"at least {low}")


def check_schedule(schedule: Schedule, issues: IssueCollector) -> None:
    """Check that the schedule has one trigger, and a valid cron expression and time zone."""
    if schedule.cron is None and schedule.on is None:
        hint = 'write cron = "@weekly" or on = "data"'
        issues.add(("schedule", "cron"), "is missing", hint=hint)
    if schedule.on is not None:
        for key, there in (("cron", schedule.cron is not None), ("catchup", schedule.catchup)):
            if there:
                issues.add(
                    ("schedule", key), 'cannot be combined with on = "data"', hint="remove one of them"
                )
    if schedule.cron is not None and (issue := cron_issue(schedule.cron)):
        hint = 'such as "@weekly" or "0 6 * * 1"'
        issues.add(("schedule", "cron"), issue, found=schedule.cron, hint=hint)
    if schedule.timezone != "UTC" and not is_zone(schedule.timezone):
        issues.add(
            ("schedule", "timezone"),
            "is not a time zone",
            found=schedule.timezone,
            expected="a name of the IANA database",
            hint='such as "UTC" or "Europe/Vienna"',
        )


def check_intervals(columns: Columns, data: Data, schedule: Schedule | None, issues: IssueCollector) -> None:
    """Check that a scheduled run can select its rows."""
    if data.source is not None:
        check_source_intervals(data.source, columns, schedule, issues)
    partitioned = data.pattern is not None and has_fields(data.pattern)
    bound = data.source is not None and (data.source.bound or data.source.has_history)
    if schedule is None or partitioned or bound:
        return
    hint = 'name the files by date, such as [data] path = "data/{date}.csv"'
    if data.source is not None:
        hint = "write a query with :end, or a path with {date}"
        if data.source.pinned is not None:
            hint = "remove the version: each run reads the table as it was at the end of its interval"
    if schedule.on == "data":
        issues.add(("schedule", "on"), "needs a path with {date} or other fields", hint=hint)
    elif columns.time is None:
        hint += ", or name the column with the time of a row: [columns] time"
        issues.add(("schedule",), "does not define which rows belong to which run", hint=hint)


def check_deadline(schedule: Schedule | None, owner: Owner, issues: IssueCollector) -> None:
    """Check that a deadline has a recipient."""
    if schedule is not None and schedule.deadline is not None and not owner.notify:
        hint = 'write [owner] notify = ["webhook"]'
        issues.add(("schedule", "deadline"), "has no recipient", hint=hint)


def is_zone(name: str) -> bool:
    """Return whether a name is a time zone of the IANA database."""
    # Imported here: few specs name a time zone.
    from zoneinfo import ZoneInfo

    # The pattern first: the name becomes part of a path.
    if not _ZONE.fullmatch(name):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def check_owner(owner: Owner, issues: IssueCollector) -> None:
    """Check that channels exist and email has an address; only at admission: trainers lack notifiers."""
    notifiers = extensions.names("dmls.notifiers") if owner.notify else ()
    for channel in owner.notify:
        name = channel.partition(":")[0]
        if name not in notifiers:
            issues.add(
                ("owner", "notify"),
                "names no installed notifier",
                found=channel,
                expected=f"one of {', '.join(notifiers)}",
                word=name,
                names=notifiers,
            )
    if owner.email is None and any(channel.partition(":")[0] == "email" for channel in owner.notify):
        hint = 'write email = "…" in [owner]'
        issues.add(("owner", "notify"), "includes email, but [owner] has no address", hint=hint)


def check_resources(resources: Resources, issues: IssueCollector, limits: SpecLimits) -> None:
    """Check the number of GPUs against the engine, and the number of nodes against the platform's limit."""
    if resources.nodes > limits.nodes:
        hint = f"the platform's limit is {limits.variable('nodes')}"
        most = f"at most {limits.nodes}"
        issues.add(
            ("resources", "nodes"), "is above the limit", found=resources.nodes, expected=most, hint=hint
        )
    path = ("resources", "gpus")
    if resources.engine == "cpu" and resources.gpus:
        issues.add(path, "cannot be used by the cpu engine", found=resources.gpus, hint='engine = "gpu"')
    if resources.engine == "gpu" and resources.gpus == 0:
        issues.add(path, "must be at least 1 for the gpu engine", found=0, expected="at least 1")


def read_tags(value: object, issues: IssueCollector, limits: SpecLimits) -> dict[str, str]:
    """Return the user's own tags."""
    if not isinstance(value, dict):
        hint = 'write [tags] and below it team = "…"'
        issues.add(("tags",), "must be a table", found=value, expected="a table", hint=hint)
        return {}
    if len(value) > limits.tags:
        most = f"at most {limits.tags}"
        issues.add(("tags",), "has too many tags", found=len(value), expected=most)
        return {}
    for key, text in value.items():
        path = ("tags", key)
        if not isinstance(text, str):
            right = "a string in quotes"
            issues.add(path, f"must be {right}", found=text, expected=right)
        if not _TAG.fullmatch(key):
            right = "up to 100 letters, digits, blanks, and _ . / -"
            issues.add(path, "is not a name for a tag", expected=right)
        elif key.startswith(("dmls.", "mlflow.")):
            issues.add(path, "is reserved for the platform")
    return value


DEFAULT_TRIALS = 20
"""Default of ``n_trials``, if the search space is not smaller."""


def read_trials(
    value: object, searches: Sequence[ModelSearch], issues: IssueCollector, limits: SpecLimits
) -> int:
    """Return ``n_trials``, or the default if ``value`` is ``None``."""
    if value is None:
        sizes = [space_size(search.hyperparameters) for search in searches]
        return min(DEFAULT_TRIALS, sum(size or DEFAULT_TRIALS for size in sizes))
    right = f"an integer from 1 to {limits.trials:,}"
    if isinstance(value, bool) or not isinstance(value, int):
        hint = "remove the quotes" if looks_bare(value) else f"write n_trials = {DEFAULT_TRIALS}"
        issues.add(("n_trials",), "must be an integer", found=value, expected=right, hint=hint)
        return 0
    if not 1 <= value <= limits.trials:
        issues.add(("n_trials",), "is out of bounds", found=value, expected=right)
    return value


def check_search(
    search: Search,
    model: ModelDefinition,
    searches: Sequence[ModelSearch],
    issues: IssueCollector,
    limits: SpecLimits,
) -> Search:
    """Return the search with the catalogue's name of its metric."""
    metric = _metric(search.metric, model) if search.metric else model.default_metric
    if not metric:
        issues.add(
            ("search", "metric"),
            f"is not a metric for {model.task}",
            found=search.metric,
            expected=", ".join(model.metrics),
            word=search.metric,
            names=model.metrics,
        )
    _check_strategy(search.strategy, searches, issues, limits)
    return search.model_copy(update={"metric": metric})


def _metric(name: str, model: ModelDefinition) -> str:
    for metric in model.metrics.values():
        if name == metric.name or name in metric.aliases:
            return metric.name
    return ""


def _check_strategy(
    name: str, searches: Sequence[ModelSearch], issues: IssueCollector, limits: SpecLimits
) -> None:
    names = extensions.names("dmls.samplers")
    if name not in names:
        right = f"one of {', '.join(map(quoted, names))}"
        path = ("search", "strategy")
        issues.add(path, f"must be {right}", found=name, expected=right, word=name, names=names)
        return
    strategy = extensions.load("dmls.samplers", name)
    if strategy.grid:
        _check_grid(searches, issues, limits)
    if strategy.requires_range:
        _check_ranges(name, searches, issues)


def _check_grid(searches: Sequence[ModelSearch], issues: IssueCollector, limits: SpecLimits) -> None:
    points = sum(
        math.prod(space.grid_size for space in search.hyperparameters.values()) for search in searches
    )
    if points > limits.grid:
        issues.add(
            ("search", "strategy"),
            "makes a grid of too many points",
            found=points,
            expected=f"at most {limits.grid:,}",
            hint="use larger steps or another strategy",
        )


def _check_ranges(strategy: str, searches: Sequence[ModelSearch], issues: IssueCollector) -> None:
    """Check that each model has a range: the strategy samples other values at random."""
    for search in searches:
        if not any(isinstance(space, Range) for space in search.hyperparameters.values()):
            issues.add(
                ("search", "strategy"),
                f"requires a range, and {search.name} has none",
                found=strategy,
                expected="at least one hyperparameter with min and max",
                hint='strategy = "tpe" searches values as well',
            )


def check_evaluation(
    evaluation: Evaluation, columns: Columns | None, model: ModelDefinition, issues: IssueCollector
) -> Evaluation:
    """Return the evaluation with the default split; ``columns`` are ``None`` if they are not valid."""
    path = ("evaluation", "split")
    regression, split = model.task == "regression", evaluation.split
    group = columns.group if columns else None
    if "split" not in evaluation.model_fields_set:
        random = regression or group is not None or evaluation.group_duplicates
        return evaluation.model_copy(update={"split": "random" if random else "stratified"})
    if regression and split == "stratified":
        right = '"random" or "time"'
        issues.add(path, "cannot be stratified for a regressor", found="stratified", expected=right)
    if split == "time" and columns and columns.time is None:
        hint = 'write time = "…" in [columns]'
        issues.add(path, "requires a time column", found="time", hint=hint)
    grouped = {"columns.group": group, "evaluation.group_duplicates": evaluation.group_duplicates}
    for key, value in grouped.items():
        if value and split != "random":
            hint = f"remove {key} or the split; a random split of groups keeps the classes' shares if it can"
            issues.add(path, f"cannot be combined with {key}", found=split, expected='"random"', hint=hint)
    return evaluation
