"""Findings reach the status, the tags of the version, the counters and the owner."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dmls_core.evaluate.decay import Decay
from dmls_core.intake import read_status, write_status
from dmls_core.monitoring.drift import compare
from dmls_core.monitoring.findings import TAG_LENGTH, DriftCheck, publish
from dmls_core.monitoring.jobs import MonitoredJob
from dmls_core.monitoring.label_evaluation import LabelCheck, VersionEvaluation
from dmls_core.monitoring.label_files import LabelState
from dmls_core.monitoring.profile import Values, profile_of
from dmls_core.store import layout, open_store

OWNER = {"notify": ["email"]}
JOB = MonitoredJob("lab", "churn", {"owner": OWNER})


class Published:
    """Runs ``publish`` and keeps what it wrote; only MLflow is replaced."""

    def __init__(self, folder, monkeypatch):
        self.store = open_store(str(folder))
        self.notified = []
        self.tags = {}
        monkeypatch.setattr("dmls_core.tracking.registry.tag_version", self.tag)
        write_status(self.store, "lab", "churn", "deployed", "version 3 is served")

    def tag(self, uri, name, version, tags):
        assert (uri, name) == ("http://mlflow", "lab.churn")
        self.tags.setdefault(version, {}).update(tags)

    def __call__(self, checks=(), labels=None):
        publish(self.store, "http://mlflow", JOB, checks, labels, lambda *event: self.notified.append(event))
        return read_status(self.store, "lab", "churn")

    @property
    def counts(self):
        key = layout.metrics_folder("lab", "churn") + "counts.json"
        return json.loads(self.store.get(key))["counts"] if self.store.head(key) else {}


@pytest.fixture
def published(tmp_path, monkeypatch):
    return Published(tmp_path / "root", monkeypatch)


def drift_check(shift, source="requests", page="page", name="age"):
    draw = np.random.default_rng(0)
    old = [Values(name, "feature", draw.normal(size=500))]
    new = {("feature", name): Values(name, "feature", draw.normal(size=500) + shift)}
    return DriftCheck(JOB, source, compare(profile_of(old, 500), new, 500, 0.2), 3, page, "")


def evaluation(version=3, verdict="decayed", score=0.7):
    decay = Decay(verdict, "accuracy", "maximize", 300, score, None, 0.9, None, 100)
    return VersionEvaluation(version, "run", champion=True, decay=decay)


def test_nothing_new_changes_nothing(published):
    before = published.store.get("incoming/lab/churn/_status.json")
    published()
    published(labels=LabelCheck(LabelState()))
    assert published.store.get("incoming/lab/churn/_status.json") == before
    assert (published.tags, published.counts, published.notified) == ({}, {}, [])


def test_drift_is_counted_tagged_noted_and_reported_to_the_owner(published):
    status = published([drift_check(3.0)])
    message = status.message.removeprefix("version 3 is served; later: ")
    assert message.startswith("1 of 1 columns drifted in 500 rows: age")
    assert status.links == {"drift": "page"}
    assert published.counts == {"drift_checks": 1, "drifts": 1}
    assert published.tags[3]["dmls.drift"] == message
    assert published.notified == [(OWNER, "drifted", "lab/churn", message, {"drift": "page"})]


def test_without_drift_the_owner_is_not_notified(published):
    status = published([drift_check(0.0)])
    assert status.message.endswith("no drift in 500 rows and 1 columns")
    assert published.counts == {"drift_checks": 1}
    assert published.tags[3].keys() == {"dmls.drift", "dmls.drift_checked"}
    assert published.notified == []


def test_the_latest_check_with_drift_is_shown_with_its_partition(published):
    checks = [
        drift_check(3.0, "data/a.csv", "first"),
        drift_check(3.0, "data/b.csv", "second"),
        drift_check(0.0, "data/c.csv", "third"),
    ]
    status = published(checks)
    assert status.message.endswith("(data/b.csv)")
    assert status.links == {"drift": "second"}
    assert published.counts == {"drift_checks": 3, "drifts": 2}
    assert len(published.notified) == 1


def test_a_long_column_name_fits_into_a_tag(published):
    published([drift_check(3.0, name="x" * 2_000)])
    assert len(published.tags[3]["dmls.drift"]) == TAG_LENGTH


def test_decay_of_a_version_is_counted_tagged_and_reported(published):
    evaluations = (evaluation(), evaluation(2, "steady", 0.9), evaluation(1, "too few rows", None))
    labels = LabelCheck(LabelState(), "decayed a lot", evaluations, page="decay.html")
    status = published(labels=labels)
    assert status.message.endswith("; later: decayed a lot")
    assert status.links == {"labels": "decay.html"}
    assert published.counts == {"decay_checks": 1, "decays": 1}
    assert published.tags.keys() == {3, 2}, "version 1 has no score"
    assert "the model has decayed" in published.tags[3]["dmls.decay"]
    assert published.notified == [(OWNER, "decayed", "lab/churn", "decayed a lot", {"labels": "decay.html"})]


def test_a_steady_version_is_not_reported(published):
    published(labels=LabelCheck(LabelState(), "fine", (evaluation(verdict="steady"),), page="decay.html"))
    assert published.counts == {"decay_checks": 1}
    assert published.notified == []


def test_too_few_labels_are_a_note_and_no_check(published):
    status = published(labels=LabelCheck(LabelState(), "too few labels"))
    assert status.message.endswith("; later: too few labels")
    assert (published.tags, published.counts, published.notified) == ({}, {}, [])


@pytest.mark.parametrize(
    ("unread", "note"),
    [
        (("a is broken",), "cannot read label files: a is broken"),
        (("a is broken", "b"), "cannot read label files: a is broken (and 1 more file)"),
        (("a is broken", "b", "c"), "cannot read label files: a is broken (and 2 more files)"),
    ],
)
def test_unreadable_label_files_are_rejected_with_all_their_errors(published, unread, note):
    status = published(labels=LabelCheck(LabelState(), unread=unread))
    assert status.message.endswith(note)
    ((_, event, job, message, links),) = published.notified
    assert (event, job, links) == ("rejected", "lab/churn", {})
    assert message == "cannot read label files: " + "; ".join(unread)


def test_drift_and_labels_share_one_note(published):
    labels = LabelCheck(LabelState(), "decayed a lot", (evaluation(),), page="decay.html")
    status = published([drift_check(0.0)], labels)
    assert status.message.endswith("no drift in 500 rows and 1 columns; decayed a lot")
    assert status.links == {"drift": "page", "labels": "decay.html"}
