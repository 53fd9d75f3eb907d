"""Find submissions, admit or reject them, and write their status next to them."""

from __future__ import annotations

from dmls_core.intake.admission import admit, report_check, report_failure
from dmls_core.intake.data_files import Partition, choose_data, find_partitions, partitions_between
from dmls_core.intake.status import State, Status
from dmls_core.intake.status_store import (
    add_note,
    read_status,
    report_served,
    report_stopped,
    update_run_status,
    write_status,
)
from dmls_core.intake.submissions import (
    Submission,
    SubmissionListing,
    find_submissions,
    group_submissions,
    submit,
)

__all__ = [
    "Partition",
    "State",
    "Status",
    "Submission",
    "SubmissionListing",
    "add_note",
    "admit",
    "choose_data",
    "find_partitions",
    "find_submissions",
    "group_submissions",
    "partitions_between",
    "read_status",
    "report_check",
    "report_failure",
    "report_served",
    "report_stopped",
    "submit",
    "update_run_status",
    "write_status",
]
