"""Forests on two worker processes, one of which is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dmls_core.models.cluster import Cluster, ShardedMatrix
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from dmls_core.search.task import SearchTask, Space
from dmls_core.search.trial import Trial
from dmls_core.spec import Choice, Range
from tests.unit.search.forest.conftest import make_task

if TYPE_CHECKING:
    from distributed import Client

ROWS, HELD_OUT = 8_000, 2_000

SPACE = Space({"n_estimators": Range(min=10, max=40), "min_samples_leaf": Choice(values=(1, 5, 20))}, {})


def searched(task: SearchTask, kept: list[Trial], on_trial=lambda _: None):
    def keep(trial: Trial) -> None:
        kept.append(replace(trial, seconds=0.0))
        on_trial(trial)

    _, outcome = search([make_candidate("auto", task, SPACE, 3)], 3, on_trial=keep)
    assert outcome.fitted is not None
    return outcome.fitted


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    from distributed import Client, LocalCluster
    from distributed.security import Security

    options = {"host": "127.0.0.1", "dashboard_address": None, "security": Security.temporary()}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        yield client


def test_a_forest_recovers_from_a_killed_worker_and_scores_as_that_of_one_machine(
    client: Client, tmp_path: Path
) -> None:
    whole = make_task(rows=ROWS + HELD_OUT, classes=2)
    # Sorted by class, as a file may be.
    order = np.argsort(whole.truth[:ROWS], kind="stable")
    rows, truth = whole.features[order], whole.truth[order]
    alone = replace(whole, features=rows, target=truth, truth=truth)
    (tmp_path / "matrix").write_bytes(rows.tobytes(order="F"))
    file = np.memmap(tmp_path / "matrix", np.float32, "r", shape=rows.shape, order="F")

    notes: list[str] = []
    undisturbed: list[Trial] = []
    disturbed: list[Trial] = []
    cluster = Cluster(client, 2, "127.0.0.1", notes.append)
    task = replace(alone, features=ShardedMatrix(file, np.arange(ROWS), cluster))
    first = searched(task, undisturbed)
    assert notes == []

    def kill(trial: Trial) -> None:
        if trial.number == 0 and cluster.generation == 1:
            pid = client.run(os.getpid)[cluster.workers[0]]
            Timer(0.05, os.kill, (pid, signal.SIGKILL)).start()

    second = searched(task, disturbed, kill)

    assert notes == ["1 of 2 nodes lost: the fit starts again"]
    assert disturbed == undisturbed
    held_out, answer = whole.features[ROWS:], whole.truth[ROWS:]
    found = first.predict(held_out)
    assert np.array_equal(second.predict(held_out), found)

    expected = searched(alone, [])
    scores = [np.mean(one.argmax(axis=1) == answer) for one in (found, expected.predict(held_out))]
    assert scores[1] > 0.6
    assert abs(scores[0] - scores[1]) < np.sqrt(scores[1] * (1 - scores[1]) / HELD_OUT)


def test_results_of_a_worker_that_is_killed_before_they_are_fetched(client: Client) -> None:
    notes: list[str] = []
    cluster = Cluster(client, 2, "127.0.0.1", notes.append)
    pid = client.run(os.getpid)[cluster.workers[1]]

    def attempt() -> list[np.ndarray]:
        calls = [cluster.submit(number, np.full, 1_000_000, number) for number in range(2)]
        cluster.wait(calls)
        if not notes:
            os.kill(pid, signal.SIGKILL)
        return cluster.results(calls)

    assert [found.sum() for found in cluster.retried(attempt)] == [0, 1_000_000]
    assert notes == ["1 of 2 nodes lost: the fit starts again"]
