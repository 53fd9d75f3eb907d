from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.errors import SubmissionError
from dmls_core.store import layout, run_key

names = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)


def test_the_keys_of_the_design() -> None:
    assert layout.incoming_folder("growth", "iris") == "incoming/growth/iris/"
    assert layout.incoming_file("growth", "iris", "spec.toml") == "incoming/growth/iris/spec.toml"
    assert layout.job_record("growth", "iris") == "registry/jobs/growth/iris.json"
    assert layout.spec("ab12") == "registry/specs/ab12.json"
    assert layout.served("lab", "iris") == "registry/served/lab/iris.json"
    assert layout.snapshot("v1") == "registry/snapshots/v1.json"
    assert layout.run_folder("growth", "iris", "00ff") == "runs/growth/iris/00ff/"
    assert layout.trial(7) == "trials/00007.json"
    assert layout.model_name("growth", "iris") == "growth.iris"
    assert layout.dag_id("growth", "iris") == "dmls.growth.iris"


@given(team=names, job=names)
def test_valid_names_are_accepted(team: str, job: str) -> None:
    assert layout.check_name("team", team) == team
    assert layout.parse_incoming(layout.incoming_file(team, job, "x.csv")) == (team, job, "x.csv")


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("Iris", "iris"),
        ("my job", "my-job"),
        ("..", "iris"),
        ("%2e%2e", "2e-2e"),
        ("ｉｒｉｓ", "iris"),  # noqa: RUF001
        ("iris\n", "iris"),
        ("-x", "x"),
        ("_x", "x"),
        ("", "iris"),
        ("a" * 64, "a" * 63),
        ("a/b", "a-b"),
        ("ириска", "iris"),
    ],
)
def test_invalid_names_get_a_suggestion(name: str, better: str) -> None:
    with pytest.raises(SubmissionError) as caught:
        layout.check_name("job", name)
    (issue,) = caught.value.issues
    assert repr(name) in issue.message
    assert better in issue.hint


@given(st.text(max_size=80))
def test_invalid_names_never_become_keys(name: str) -> None:
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", name):
        return
    for make in (layout.job_record, layout.model_name, layout.dag_id):
        with pytest.raises(SubmissionError):
            make(name, "job")
        with pytest.raises(SubmissionError):
            make("team", name)
    with pytest.raises(SubmissionError):
        layout.run_folder("team", name, "key")


@given(st.text(alphabet="ab./%\\ \u0130\uff0f", max_size=40))
def test_incoming_keys_round_trip(rest: str) -> None:
    drop = layout.parse_incoming("incoming/" + rest)
    assert drop
    folder = layout.incoming_folder(drop.team, drop.job)
    assert folder + drop.filename == layout.incoming_file(*drop)
    if not drop.team.startswith("/") and "//" not in "/" + rest:
        assert layout.incoming_file(*drop) == "incoming/" + rest
    assert layout.parse_incoming("other/" + rest) is None


class TestRunKey:
    def test_run_keys_are_stable_across_releases(self) -> None:
        assert run_key("ab" * 32, ["etag"]) == "2dbc9659c3d80fdd"

    def test_the_order_of_files_does_not_matter(self) -> None:
        assert run_key("a", ["1", "2"]) == run_key("a", ["2", "1"])

    def test_every_input_changes_the_key(self) -> None:
        day = datetime(2026, 1, 1, tzinfo=UTC)
        interval = (day, day + timedelta(days=1))
        keys = {
            run_key("a", ["1"]),
            run_key("b", ["1"]),
            run_key("a", ["2"]),
            run_key("a", ["1", "1"]),
            run_key("a", ["1"], interval),
            run_key("a", ["1"], (day, day)),
        }
        assert len(keys) == 6
        assert all(re.fullmatch("[0-9a-f]{16}", key) for key in keys)

    def test_intervals_are_equal_in_any_time_zone(self) -> None:
        vienna = timezone(timedelta(hours=1))
        utc = datetime(2026, 1, 1, tzinfo=UTC)
        local = datetime(2026, 1, 1, 1, tzinfo=vienna)
        assert run_key("a", ["1"], (utc, utc)) == run_key("a", ["1"], (local, local))


OF_JOBS = [
    function
    for _, function in inspect.getmembers(layout, inspect.isfunction)
    if {"team", "job"} <= inspect.signature(function).parameters.keys()
    and not function.__name__.startswith("incoming_")  # which answer submissions with any name
]


@pytest.mark.parametrize("function", OF_JOBS, ids=lambda function: function.__name__)
@given(team=names, job=names, other=names)
def test_no_key_of_a_team_is_a_key_of_another(function, team: str, job: str, other: str) -> None:
    parameters = inspect.signature(function).parameters.keys() - {"team", "job"}
    rest: dict[str, object] = {name: 7 if name == "number" else "data" for name in parameters}

    def key(of: str) -> str:
        return str(function(team=of, job=job, **rest))

    assert (key(team) == key(other)) == (team == other)
    assert not key(other).startswith(key(team)) or team == other
    for crossing in (f"../{other}", f"{team}/../{other}", f"{team}.{other}", "", "."):
        with pytest.raises(SubmissionError):
            key(crossing)
        with pytest.raises(SubmissionError):
            function(team=team, job=crossing, **rest)
