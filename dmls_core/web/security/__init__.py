"""Who may do what, and what a browser may do with an answer."""

from __future__ import annotations

from dmls_core.web.security.access import (
    Caller,
    JobCaller,
    Name,
    Team,
    job_may,
    may,
    readable,
    signed_in,
)
from dmls_core.web.security.body import BodyLimit
from dmls_core.web.security.headers import SecurityHeaders
from dmls_core.web.security.same_site import SameSite

__all__ = [
    "BodyLimit",
    "Caller",
    "JobCaller",
    "Name",
    "SameSite",
    "SecurityHeaders",
    "Team",
    "job_may",
    "may",
    "readable",
    "signed_in",
]
