"""The tabs of a job in each of its states, without anything to list."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from dmls_core.errors import PlatformError, UserError, ValidationIssue
from dmls_core.intake.status import State
from dmls_core.store import ProcessFailure
from dmls_core.web.services.job_details import JobDetails, Rights
from dmls_core.web.services.runs import Run, RunDetails
from dmls_core.web.services.scored_files import ScoredFiles
from dmls_core.web.templating import environment

TABS: dict[str, dict[str, Any]] = {
    "job.html": {"view": None},
    "job_runs.html": {"runs": []},
    "job_compare.html": {"comparison": None},
    "job_versions.html": {"versions": []},
    "job_files.html": {"scored": ScoredFiles(files=[], total=0)},
    "job_history.html": {"events": [], "run_names": {}},
    "job_keys.html": {"keys": [], "may_team": True, "team": "lab", "choices": []},
}
"""What each tab has in addition to the job."""

STATES = (*get_args(State), "retired", "registered")


def page(
    template: str, state: str, *, message: str = "", errors: Any = (), failures: Any = (), **more: Any
) -> str:
    job = JobDetails(
        job="lab/iris", state=state, message=message, errors=list(errors), links={}, updated="", version=1,
        spec=None, data=[], run_key="k", served=None, served_model=None, drift=[],
        process_failures=list(failures), paused=False, next_run=None, schedule="", queue=None, waiting="",
        starts=None,
        may=Rights(deploy=True, run=True, change=True, retire=True),
    )  # fmt: skip
    values = TABS[template] | more
    return environment().get_template(template).render(
        job=job, caller=SimpleNamespace(team="lab", name="iris"), base="/dmls", path="/jobs/lab/iris",
        asset=lambda name: f"/static/{name}", tab="overview", **values,
    )  # fmt: skip


@pytest.mark.parametrize("template", TABS)
@pytest.mark.parametrize("state", STATES)
def test_every_tab_is_shown_in_every_state(template: str, state: str):
    found = page(template, state)
    assert "<h1>lab/iris</h1>" in found
    assert ("Retire…" in found) == (state != "retired")
    assert 'data-command="retire"' not in found


@pytest.mark.parametrize("errors", [("has one class", "is empty"), ("has one class",), ()])
def test_the_reason_of_a_failure_is_given_once(errors: tuple[str, ...]):
    reasons = [ValidationIssue(f"the target {error}") for error in errors]
    error = UserError(reasons) if errors else PlatformError("the target has one class")
    run = Run("manual__1", "failed", "manual", None, None, None, {}, 1, "k", name="version 1")
    view = RunDetails(
        run=run, tasks=[], progress=None, seconds_left=None, trials=[], result=None, insight=None,
        error={"message": str(error)}, runner=None, leases=[], has_report=False, has_validation=False,
    )  # fmt: skip
    message = f"The task search failed: {str(error).splitlines()[0]}"
    once = [f"the target {error}" for error in errors or ["has one class"]]
    values = {
        "message": message,
        "errors": [one.as_json() for one in reasons],
        "view": view,
        "steps": [],
        "live": False,
    }
    found = page("job.html", "failed", **values)
    assert [found.count(reason) for reason in once] == [1] * len(once)
    view.error = {"message": "of an earlier run"}
    assert page("job.html", "failed", **values).count("of an earlier run") == 1


def test_a_model_of_a_retired_job_that_waits_can_be_declined():
    waiting = {"steps": [("search", "success"), ("approve", "awaiting_input")]}
    assert 'data-command="retire"' in page("job_runs.html", "retired", **waiting)
    assert 'data-command="retire"' not in page("job_runs.html", "running", **waiting)


def test_the_page_says_which_process_ended_and_what_became_of_it():
    ended = ProcessFailure("lab.iris", "triton-1:8000", "2026-11-29T12:03:10+00:00")
    healed = replace(ended, reloaded="2026-11-29T12:03:19+00:00")
    text = "process of lab.iris on triton-1:8000 ended (noticed 2026-11-29 12:03:10 UTC) and "
    found = page("job.html", "deployed", failures=[ended])
    assert f"{text}is being reloaded; until then a part of the requests fails" in found
    assert f"{text}was reloaded 2026-11-29 12:03:19 UTC" in page("job.html", "deployed", failures=[healed])
