"""What must hold for ``[data] labels``, and how the files' columns are called."""

from __future__ import annotations

from dmls_core.spec.findings import Findings
from dmls_core.spec.partitions import a_name, parse_names
from dmls_core.spec.tables import Columns, Data, Drift

REQUEST, ROW = "request_id", "row"
"""Columns of a file of labels, beside the target."""


def check_labels(columns: Columns, data: Data, drift: Drift | None, findings: Findings) -> None:
    """Labels meet logged answers, and are no training data.

    Args:
        columns: in order, as the others are.
        data: likewise.
        drift: likewise.
        findings: takes what is wrong.
    """
    if data.labels is None:
        return
    place = ("data", "labels")
    if drift is None or drift.sample == 0:
        key, hint = ("[drift]", "write [drift]") if drift is None else ("drift.sample", "sample = 0.1")
        findings.add(place, f"needs {key}: without it no answer is logged", hint=hint)
    if columns.target in (REQUEST, ROW):
        hint = "rename the column of the target: files of labels have their own column of this name"
        findings.add(place, "cannot go with this target", found=columns.target, hint=hint)
    try:
        _, expression = parse_names(data.labels)
    except ValueError as error:
        findings.add(place, str(error), found=data.labels, hint='such as "labels/{date}.csv"')
        return
    if data.path is None:
        return
    try:
        _, others = parse_names(data.path)
    except ValueError:
        return  # more stars than a pattern of labels may have: these cannot be told apart here
    if expression.fullmatch(a_name(data.path)) or others.fullmatch(a_name(data.labels)):
        hint = 'put them into a folder of their own: labels = "labels/{date}.csv"'
        findings.add(place, "names the data that is trained on", found=data.labels, hint=hint)
