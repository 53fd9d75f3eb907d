"""The result on a run's page, rendered from what a trainer writes."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dmls_core.data.encoder import Encoder, NumberFeature, Target
from dmls_core.evaluate.diagnostics import diagnose
from dmls_core.evaluate.insight import describe_insight
from dmls_core.store import ServedModel
from dmls_core.web import pages
from dmls_core.web.services.job_details import JobDetails
from dmls_core.web.services.runs import TRIAL_FIELDS, Run, RunDetails
from dmls_core.web.templating import environment
from tests.unit.evaluate.evidence import HOSTILE, Case


def details(case: Case, *, insight: bool) -> RunDetails:
    diagnostics = diagnose(case.evidence, case.predict, trees=1)
    encoder = Encoder(tuple(map(NumberFeature, case.names)), Target("y", tuple(case.labels or ()) or None))
    found = {**describe_insight(case.evidence, diagnostics, encoder), "search": []}
    result = case.result()
    result |= {"tuned": sorted(result["best_params"])[:1], "permutation": {}, "comparison": None}
    result["holdout"] = {**result["holdout"], "interval": [0.5, 0.6]}
    run = Run("manual__1", "success", "manual", None, None, None, {}, 1, "k", name="version 1")
    return RunDetails(
        run=run, tasks=[], progress=None, seconds_left=None, trials=[], result=result,
        insight=found if insight else None, error=None, runner=None, has_report=True, has_validation=False,
        leases=[],
    )  # fmt: skip


def render(view: RunDetails, drift: list[dict[str, str]] | None = None) -> str:
    model = ServedModel(1, run="trained it")
    job = JobDetails.model_construct(
        spec={}, served=1, served_model=model, version=1, data=[], drift=drift or []
    )
    values = pages._run_values(job, view)
    return environment().get_template("job_result.html").render(
        job=job, caller=SimpleNamespace(team="lab", name="iris"), base="/dmls", home="/dmls/jobs/lab/iris",
        asset=lambda name: f"/static/{name}", **values,
    )  # fmt: skip


@pytest.mark.parametrize("classes", [0, 2, 3, 40])
@pytest.mark.parametrize("insight", [True, False], ids=["insight", "earlier-release"])
def test_the_four_questions_have_answers(classes: int, insight: bool):
    page = render(details(Case(classes), insight=insight))
    places = [
        page.index(question)
        for question in ("How good is it?", "What drives it?", "Where is it wrong?", "Can I trust it?")
    ]
    assert places == sorted(places)
    assert "style=" not in page, "the policy of the page forbids inline styles"
    assert ("Baseline without features" in page) == insight
    assert ("data-cell" in page) == (insight and classes > 0)
    assert ('data-chart="scatter"' in page) == (insight and classes == 0)


@pytest.mark.parametrize(
    ("served_as", "key", "served"),
    [(1, "k", True), (None, "trained it", True), (2, "k", False), (None, "", False)],
)
def test_a_run_says_whether_its_model_is_served(served_as: int | None, key: str, served: bool):
    """A run that took the result of an earlier one with its key deploys nothing, but has the same model."""
    view = details(Case(2), insight=True)
    page = render(view.model_copy(update={"run": replace(view.run, served_as=served_as, run_key=key)}))
    assert ("this model is served" in page) == served
    assert ("Its model is not served. The served one, version 1 in Triton" in page) != served


def test_late_labels_are_judged_below_the_last_question():
    judged = {
        "compared": "labels",
        "verdict": "decayed",
        "message": "accuracy 0.56, 0.81 in training",
        "at": "",
    }
    page = render(details(Case(2), insight=True), drift=[judged])
    assert "Late labels: accuracy 0.56, 0.81 in training" in page[page.index("Can I trust it?") :]
    assert 'drift?source=labels"' in page


def test_trials_with_one_configuration_share_a_row():
    view = details(Case(2), insight=True)
    first = {
        **dict.fromkeys(TRIAL_FIELDS),
        "number": 0,
        "state": "pruned",
        "value": 0.5,
        "params": {"depth": 3},
    }
    view = view.model_copy(
        update={"trials": [first, *({**first, "number": at, "same_as": 0} for at in (1, 2))]}
    )
    page = render(view)
    assert page.count("data-trial=") == 1
    assert re.search(r'<th scope="row">0 <span [^>]*>1, 2</span></th>', page)


def test_parameters_that_the_spec_fixes_were_not_tuned():
    view = details(Case(2), insight=True)
    assert "so none was tuned" not in render(view)
    view.result["tuned"] = []
    assert "so none was tuned" in render(view)


def test_a_model_without_a_clear_driver_says_so():
    view = details(Case(2), insight=True)
    assert "No column clearly matters" not in render(view)
    view.insight["permutation"] = [["f0", 0.004, 0.003], ["f1", -0.001, 0.002]]
    assert "No column clearly matters" in render(view)


def test_names_of_columns_and_classes_are_escaped():
    page = render(details(Case(3, names=[HOSTILE, "b"]), insight=True))
    assert "<img" not in page
    assert "evil.example" in page


def test_an_ensemble_names_its_trials():
    view = details(Case(3), insight=True)
    assert "The model is the mean" not in render(view)
    members = [{"trial": 7, "weight": 0.6}, {"trial": 2, "weight": 0.4}]
    view.result["ensemble"] = {"members": members}
    assert "The model is the mean of 2 trials: 7 (weight 0.60), 2 (weight 0.40)." in render(view)
    for member, model in zip(members, ("lightgbm-classifier", "xgboost-classifier"), strict=True):
        member |= {"model": model, "weight": 0.5}
    both = "the mean of 2 models: lightgbm-classifier (trial 7) and xgboost-classifier (trial 2)."
    assert f"The model is {both}" in render(view)


def test_a_search_that_began_with_the_champion_says_so():
    view = details(Case(3), insight=True)
    assert "The search began" not in render(view)
    view.result["warm_start"] = {"champion_version": 4, "params": {"max_depth": 3}}
    assert "The search began with the parameters of the champion, version 4." in render(view)


def test_warnings_are_named_beside_the_score():
    view = details(Case(3), insight=True)
    view.result["warnings"] = []
    assert "before you rely on this score" not in render(view)
    view.result["warnings"] = ["'code' alone nearly determines the target.", "There are few rows."]
    page = render(view)
    assert (
        page.index("2 warnings") < page.index("What drives it?") < page.index("&#39;code&#39; alone nearly")
    )


def test_without_a_wrong_row_there_is_no_interval():
    view = details(Case(3), insight=True)
    assert "0.5000 to 0.6000" in render(view)
    view.result["holdout"]["interval"] = [1.0, 1.0]
    assert "unknown: no held-out row is wrong" in render(view)


def test_the_best_trial_is_named_where_it_is_known():
    view = details(Case(3), insight=True)
    assert "the best of 2 trials in 3.2 s.</p>" in render(view)
    view.result["best_trial"] = 1
    assert "the best of 2 trials in 3.2 s: trial 1.</p>" in render(view)


def test_parameters_that_the_last_fit_changed_are_explained():
    view = details(Case(2), insight=True)
    name = view.result["tuned"][0]
    assert "The last fit" not in render(view)
    view.result |= {"trial_params": {name: -1}, "best_trial": 3}
    assert f"Trial 3 had {name} = -1. The last fit may have another learning rate" in render(view)
