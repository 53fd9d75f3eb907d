"""Find what was dropped, admit or reject it, and answer beside it."""

from __future__ import annotations

from dmls_core.intake.admission import Outcome, admit
from dmls_core.intake.answers import add_note, read_status, update_run_status, write_status
from dmls_core.intake.data_files import choose_data
from dmls_core.intake.partitions import Partition, find_partitions, partitions_between
from dmls_core.intake.status import State, Status
from dmls_core.intake.submissions import Submission, find_submissions, group_submissions
from dmls_core.intake.submit import submit

__all__ = [
    "Outcome",
    "Partition",
    "State",
    "Status",
    "Submission",
    "add_note",
    "admit",
    "choose_data",
    "find_partitions",
    "find_submissions",
    "group_submissions",
    "partitions_between",
    "read_status",
    "submit",
    "update_run_status",
    "write_status",
]
