"""Sentences on columns that give others away, and on what a run leaves out: remarks that refuse nothing.

The form, the command line and ``_status`` use the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmls_core.data.leaks import Relation

MOST = 8
"""Columns, or relations between columns, in the notes."""

REPEATED = 0.05
"""Share of rows that repeat earlier ones from which this is noted."""


def relation_notes(relations: Sequence[Relation], target: str) -> list[str]:
    """Return the columns that give the target away, then those that give each other away."""
    of_target = [one for one in relations if one.concerns(target)]
    others = [one for one in relations if one.both and one not in of_target]
    return [one.message for one in (*of_target, *others)[:MOST]]


def left_out_note(columns: Sequence[tuple[str, str]]) -> str:
    """Return a sentence on columns that are no features, each with its reason; empty if there are none."""
    if not columns:
        return ""
    shown = ", ".join(f"{name} ({reason})" for name, reason in columns[:MOST])
    more = f", and {len(columns) - MOST:,} more" if len(columns) > MOST else ""
    return f"Left out of the training: {shown}{more}."


def repeated_note(repeated: int, rows: int) -> str:
    """Return a sentence on rows that repeat earlier ones; empty if they are few."""
    if repeated <= REPEATED * rows:
        return ""
    return (
        f"{repeated:,} of {rows:,} rows repeat earlier ones: set [evaluation] group_duplicates, "
        "so that no row is held out while its copy is trained on."
    )
