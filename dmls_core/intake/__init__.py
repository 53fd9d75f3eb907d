"""Find what was dropped, admit or reject it, and answer beside it."""

from __future__ import annotations

from dmls_core.intake.admission import Outcome, admit
from dmls_core.intake.answers import read_status, update_run_status, write_status
from dmls_core.intake.limits import IntakeLimits
from dmls_core.intake.status import State, Status
from dmls_core.intake.submissions import Submission, find_submissions, group_submissions
from dmls_core.intake.submit import submit

__all__ = [
    "IntakeLimits",
    "Outcome",
    "State",
    "Status",
    "Submission",
    "admit",
    "find_submissions",
    "group_submissions",
    "read_status",
    "submit",
    "update_run_status",
    "write_status",
]
