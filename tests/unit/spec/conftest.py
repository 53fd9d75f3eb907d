"""What the tests of the spec share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.models import load_spec

HEAD = 'model = "random-forest-classifier"\n'
COLUMNS = '[columns]\ntarget = "species"\n'

Issues = Callable[[str | bytes], list[ValidationIssue]]


@pytest.fixture
def issues_of() -> Issues:
    """Return the issues of a spec, as text; none if it is in order."""

    def read(source: str | bytes) -> list[ValidationIssue]:
        try:
            load_spec(source.encode() if isinstance(source, str) else source)
        except SpecError as error:
            return list(error.issues)
        return []

    return read


@pytest.fixture
def only_issue(issues_of: Issues) -> Callable[[str], ValidationIssue]:
    """Return the only issue of a spec whose model and target are in order."""

    def read(text: str) -> ValidationIssue:
        (issue,) = issues_of(HEAD + text + ("" if "[columns]" in text else COLUMNS))
        return issue

    return read
