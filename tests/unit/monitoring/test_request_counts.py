"""Requests to Triton by hour: differences of its counters, kept in one small object a day."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from dmls_core.errors import ServingError
from dmls_core.monitoring.capacity import PastRun, describe_plan, plan_capacity
from dmls_core.monitoring.request_counts import RequestCounter, Requests, add_requests, read_requests
from dmls_core.store import LocalStore, layout

NOW = datetime(2026, 11, 26, 16, 30, tzinfo=UTC)


class Server:
    """A server whose counters a test sets; ``None``: it does not answer."""

    def __init__(self, address="a:8001"):
        self.addresses, self.now = {"grpc": address}, {}

    def uses(self):
        if self.now is None:
            raise ServingError("Triton does not answer")
        return self.now


@pytest.fixture
def store(tmp_path):
    return LocalStore.from_url(str(tmp_path))


def test_the_first_look_at_a_server_counts_nothing():
    server, counter = Server(), RequestCounter()
    server.now = {"lab.a": (7, 2.0)}
    assert counter.look([server]) == Requests()
    server.now = {"lab.a": (10, 2.5)}
    assert counter.look([server, Server("b:8001")]) == Requests(3, 0.5)


def test_a_server_that_did_not_answer_is_counted_at_the_next_look():
    server, counter = Server(), RequestCounter()
    counter.look([server])
    server.now = None
    assert counter.look([server]) == Requests()
    server.now = {"lab.a": (4, 1.0)}
    assert counter.look([server]) == Requests(4, 1.0)


def test_a_counter_that_fell_began_anew():
    server, counter = Server(), RequestCounter()
    server.now = {"lab.a": (100, 9.0), "lab.b": (5, 1.0)}
    counter.look([server])
    server.now = {"lab.a": (2, 0.25)}
    assert counter.look([server]) == Requests(2, 0.25)


def test_a_table_endpoints_questions_to_its_model_are_no_requests_of_users():
    server, counter = Server(), RequestCounter()
    counter.look([server])
    server.now = {
        "lab.a.table": (10, 5.0),
        "lab.a": (15, 3.0),
        "lab.small.table": (4, 1.5),
        "dmls-shared": (4, 2.0),
        "idle": (0, 0.0),
    }
    assert counter.look([server]) == Requests(10 + 5 + 4, 5.0 + 3.0 * 5 / 15 + 1.5)


def test_requests_of_dmls_itself_are_left_out():
    server, counter = Server(), RequestCounter()
    counter.look([server])
    server.now = {"lab.a.table": (10, 5.0), "lab.a": (10, 3.0)}
    sent = {("a:8001", "lab.a.table"): 4, ("a:8001", "lab.a"): 4, ("b:8001", "lab.a"): 9}
    assert counter.look([server], sent) == Requests(6, 3.0)
    server.now = {"lab.a.table": (12, 6.0), "lab.a": (12, 3.0)}
    assert counter.look([server], sent) == Requests(2, 1.0)


def test_requests_are_added_by_hour_and_old_days_go(store):
    old = layout.requests_file("2026-10-28")
    store.put(old, b"{}")
    add_requests(store, Requests(3, 0.5), NOW)
    add_requests(store, Requests(4, 0.25), NOW)
    add_requests(store, Requests(1, 1.0), NOW + timedelta(hours=1))

    assert json.loads(store.get(layout.requests_file("2026-11-26"))) == {"16": [7, 0.75], "17": [1, 1.0]}
    assert store.head(old) is None
    full = NOW.replace(minute=0)
    assert read_requests(store, NOW - timedelta(days=28)) == {
        full: Requests(7, 0.75),
        full + timedelta(hours=1): Requests(1, 1.0),
    }
    assert read_requests(store, full + timedelta(hours=1)) == {full + timedelta(hours=1): Requests(1, 1.0)}


@pytest.mark.parametrize("content", [b"no JSON", b"[]", b'{"16": 3}', b'{"16": ["a", "b"]}'])
def test_a_damaged_day_counts_as_none(store, content):
    store.put(layout.requests_file("2026-11-26"), content)
    assert read_requests(store, NOW - timedelta(days=1)) == {}
    add_requests(store, Requests(3, 0.5), NOW)
    assert read_requests(store, NOW - timedelta(days=1)) == {NOW.replace(minute=0): Requests(3, 0.5)}


def test_the_plan_says_how_many_servers_the_busiest_hour_needs():
    requests = {
        NOW - timedelta(days=2): Requests(1_000, 360.0),
        NOW - timedelta(days=1): Requests(3_000, 1_080.0),
    }
    runs = [PastRun("shop/a", NOW - timedelta(days=2), 60, "cpu")]

    today = plan_capacity(runs, [], {"cpu": 1}, NOW, requests=requests)
    few = plan_capacity(runs, [], {"cpu": 1}, NOW, requests={NOW: Requests(5, 0.01)})
    tenfold = plan_capacity(runs, [], {"cpu": 1}, NOW, jobs=10, requests=requests)

    assert (today.requests_per_day, today.busiest_hour) == (2_000, 3_000)
    assert (today.triton_cpus, today.triton_servers) == (pytest.approx(0.3), 1)
    assert "keep less than 0.01 CPUs" in dict(describe_plan(few))["requests"]
    assert (tenfold.triton_cpus, tenfold.triton_servers) == (pytest.approx(3.0), 2)
    assert dict(describe_plan(tenfold))["requests"] == (
        "20,000 a day, 30,000 in the busiest hour, which keep 3 CPUs of Triton busy: "
        "2 servers of 4 CPUs, at most 50% used"
    )


def test_without_requests_the_plan_does_not_mention_them():
    plan = plan_capacity([PastRun("shop/a", NOW, 60, "cpu")], [], {"cpu": 1}, NOW)
    assert (plan.requests_per_day, plan.triton_servers) == (None, 0)
    assert "requests" not in dict(describe_plan(plan))
