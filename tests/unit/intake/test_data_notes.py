"""Remarks on submitted data, which refuse nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmls_core.intake import admit, read_status, update_run_status
from dmls_core.intake.data_notes import fill_value_note, padded_notes, repeated_note
from dmls_core.store import layout, open_store
from tests.unit.intake.uploads import drop

LEAKING = """model = "random-forest-classifier"
n_trials = 2
[columns]
target = "survived"
drop = ["ticket", "city"]
[n_estimators]
value = 10
"""


def test_what_gives_the_target_away_and_what_is_left_out(tmp_path: Path) -> None:
    """The remarks refuse nothing, and stay in the status while the job runs."""
    store = open_store(str(tmp_path))
    rows = [
        f"{row % 2},{'no' if row % 2 else 'yes'},{row % 7},0{row % 7 // 3},t-{row * 7919},{'AB'[row % 2]}"
        for row in range(60)
    ]
    header = "survived,alive,age,zip,ticket,city"
    table = "\n".join([header, *rows, *(f",yes,{row},04,u,A" for row in range(5))])
    drop(store, {"p.csv": table.encode() + b"\n", "spec.toml": LEAKING.encode()})
    outcome = admit(store, "growth", "iris")
    assert (outcome.state, outcome.issues) == ("accepted", ())
    assert outcome.notes == (
        "alive and survived hold the same information: take alive out of the features.",
        "5 of 65 rows have no target and were left out.",
        repeated_note(46, 60),
        *padded_notes([], [("zip", "00")]),
        "Left out of the training: ticket (free text), city (the spec excludes it).",
    )
    assert outcome.record
    assert update_run_status(store, "growth", "iris", outcome.record.run_key, "running", "training")
    status = read_status(store, "growth", "iris")
    assert status
    assert status.notes == outcome.notes
    assert (
        "- Left out of the training: ticket (free text)"
        in store.get(layout.incoming_file("growth", "iris", "_status.md")).decode()
    )
    assert admit(store, "growth", "iris").notes == outcome.notes
    drop(store, {"p.csv": b"a,b\n1,2\n"})
    assert admit(store, "growth", "iris").notes == ()


@pytest.mark.parametrize(
    ("value", "others", "noted"),
    [
        (-200, [0.5, 2683], True),  # as in measurements of air
        (-999, [-40, 40], True),
        (9999, [0, 100], True),
        (-200, [-180, 40], False),  # not apart
        (-3, [0, 10], False),
        (99, [1, 30], False),  # may be a count
    ],
)
def test_a_number_that_may_stand_for_a_missing_value(value: float, others: list[float], noted: bool) -> None:
    column = np.array([value] * 3 + others * 5 + [np.nan])
    note = fill_value_note([("a", column), ("b", np.array([np.nan])), ("c", np.array(others))])
    assert note.startswith("Read as numbers") == noted
    assert (f"{value:g} in 3 rows of a (the others: " in note) == noted
    assert "of b" not in note
    assert not fill_value_note([("a", np.array([value] * 2 + others * 5))])
