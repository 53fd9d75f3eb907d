"""What must hold between the keys of a reserved table, whatever the model."""

from __future__ import annotations

import re

from dmls_core import extensions
from dmls_core.settings import SpecLimits
from dmls_core.spec.cron import cron_issue
from dmls_core.spec.findings import Findings
from dmls_core.spec.partitions import FIELDS, has_fields, parse_pattern
from dmls_core.spec.positions import Path
from dmls_core.spec.tables import Columns, Data, Expectations, Owner, Resources, Schedule

MOST_PATTERN = 10_000
"""Characters of all patterns together; to read one takes up to a millisecond for each."""

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./ -]{0,99}")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")


def check_data(data: Data, findings: Findings) -> None:
    """The data lies beside the spec, and nowhere else; so do labels."""
    for key, path in (("path", data.path), ("labels", data.labels)):
        if path is not None:
            _check_place(key, path, findings)


def _check_place(key: str, path: str, findings: Findings) -> None:
    parts = set(path.split("/"))
    if {"", ".", ".."} & parts or "\\" in path or not path.isprintable():
        findings.add(
            ("data", key),
            "must lie beside the spec",
            found=path,
            expected="the name of a file in the same folder, or a pattern such as part-*.csv",
        )
    if has_fields(path):
        try:
            parse_pattern(path)
        except ValueError as error:
            fields = ", ".join(f"{{{field}}}" for field in FIELDS)
            folder = "data" if key == "path" else key
            findings.add(
                ("data", key),
                str(error),
                found=path,
                expected=f"fields from {fields}, down to the finest without a gap",
                hint=f'such as "{folder}/{{date}}.csv" or "{folder}/dt={{date}}/*.parquet"',
            )


def check_expectations(expectations: Expectations, findings: Findings) -> None:
    """Bounds are in order, and patterns are regular expressions."""
    rows = ("expectations", "max_rows")
    _check_order(expectations.min_rows, expectations.max_rows, rows, "min_rows", findings)
    # A pattern that many columns share is read once.
    patterns = {column.pattern for column in expectations.columns.values() if column.pattern}
    if (length := sum(map(len, patterns))) > MOST_PATTERN:
        most = f"at most {MOST_PATTERN:,} characters"
        findings.add(
            ("expectations", "columns"), "has too much text in patterns", found=length, expected=most
        )
        return
    for name, column in expectations.columns.items():
        path: Path = ("expectations", "columns", name)
        _check_order(column.min, column.max, (*path, "max"), "min", findings)
        if column.pattern is None:
            continue
        if column.min is not None or column.max is not None:
            hint = "keep the bounds for numbers, or the pattern for texts"
            findings.add((*path, "pattern"), "cannot go with min or max: it is for texts", hint=hint)
        try:
            re.compile(column.pattern)
        except (re.error, ValueError, RecursionError, OverflowError) as error:
            findings.add((*path, "pattern"), f"is not a regular expression: {error}", found=column.pattern)


def _check_order(low: float | None, high: float | None, path: Path, other: str, findings: Findings) -> None:
    if low is not None and high is not None and low > high:
        findings.add(path, f"is below {other}", found=high, expected=f"at least {low}")


def check_schedule(schedule: Schedule, findings: Findings) -> None:
    """There is one occasion to run at; the cron expression and the time zone exist."""
    if schedule.cron is None and schedule.on is None:
        hint = 'say when: cron = "@weekly", or on = "data"'
        findings.add(("schedule", "cron"), "is missing", hint=hint)
    if schedule.on is not None:
        for key, there in (("cron", schedule.cron is not None), ("catchup", schedule.catchup)):
            if there:
                findings.add(("schedule", key), 'cannot go with on = "data"', hint="leave one of them out")
    if schedule.cron is not None and (issue := cron_issue(schedule.cron)):
        hint = 'such as "@weekly" or "0 6 * * 1"'
        findings.add(("schedule", "cron"), issue, found=schedule.cron, hint=hint)
    if schedule.timezone != "UTC" and not _is_zone(schedule.timezone):
        findings.add(
            ("schedule", "timezone"),
            "is not a time zone",
            found=schedule.timezone,
            expected="a name of the IANA database",
            hint='such as "UTC" or "Europe/Vienna"',
        )


def check_intervals(columns: Columns, data: Data, schedule: Schedule | None, findings: Findings) -> None:
    """What is scheduled knows which rows belong to which run."""
    partitioned = data.path is not None and has_fields(data.path)
    if schedule is None or partitioned:
        return
    hint = 'name the files by date, such as [data] path = "data/{date}.csv"'
    if schedule.on == "data":
        findings.add(("schedule", "on"), "needs a path with {date} or other fields", hint=hint)
    elif columns.time is None:
        hint += ", or say which column tells the time of a row: [columns] time"
        findings.add(("schedule",), "cannot tell which rows belong to which run", hint=hint)


def check_deadline(schedule: Schedule | None, owner: Owner, findings: Findings) -> None:
    """A deadline needs a channel for its notification."""
    if schedule is not None and schedule.deadline is not None and not owner.notify:
        hint = 'name a channel: [owner] notify = ["webhook"]'
        findings.add(("schedule", "deadline"), "would notify no channel", hint=hint)


def _is_zone(name: str) -> bool:
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


def check_owner(owner: Owner, findings: Findings) -> None:
    """Every channel has an installed notifier, and email an address.

    Only at admission: the trainer reads the accepted spec where no notifier needs to be installed.
    """
    notifiers = extensions.names("dmls.notifiers") if owner.notify else ()
    for channel in owner.notify:
        name = channel.partition(":")[0]
        if name not in notifiers:
            findings.add(
                ("owner", "notify"),
                "names no installed notifier",
                found=channel,
                expected=f"one of {', '.join(notifiers)}",
                word=name,
                names=notifiers,
            )
    if owner.email is None and any(channel.partition(":")[0] == "email" for channel in owner.notify):
        hint = 'write email = "…" in [owner]'
        findings.add(("owner", "notify"), "names email, but there is no address", hint=hint)


def check_resources(resources: Resources, findings: Findings) -> None:
    """The engine and the number of GPUs agree."""
    path = ("resources", "gpus")
    if resources.engine == "cpu" and resources.gpus:
        findings.add(path, "cannot be used by the cpu engine", found=resources.gpus, hint='engine = "gpu"')
    if resources.engine == "gpu" and resources.gpus == 0:
        findings.add(path, "must be at least 1 for the gpu engine", found=0, expected="at least 1")


def read_tags(value: object, findings: Findings, limits: SpecLimits) -> dict[str, str]:
    """Return the user's own tags."""
    if not isinstance(value, dict):
        hint = 'write [tags] and below it team = "…"'
        findings.add(("tags",), "must be a table", found=value, expected="a table", hint=hint)
        return {}
    if len(value) > limits.tags:
        most = f"at most {limits.tags}"
        findings.add(("tags",), "has too many tags", found=len(value), expected=most)
        return {}
    for key, text in value.items():
        path = ("tags", key)
        if not isinstance(text, str):
            right = "a string in quotes"
            findings.add(path, f"must be {right}", found=text, expected=right)
        if not _TAG.fullmatch(key):
            right = "up to 100 letters, digits, blanks, and _ . / -"
            findings.add(path, "is not a name for a tag", expected=right)
        elif key.startswith(("dmls.", "mlflow.")):
            findings.add(path, "is a name that the platform keeps for itself")
    return value
