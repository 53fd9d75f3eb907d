from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dmls_core.intake import SubmissionListing, find_submissions, group_submissions
from dmls_core.store import ObjectInfo, layout, open_store


def objects(*keys: str, etag: str = "") -> list[ObjectInfo]:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        ObjectInfo(key, 1, etag or hashlib.sha256(key.encode(errors="replace")).hexdigest(), moment)
        for key in keys
    ]


def test_one_folder_is_one_submission() -> None:
    (found,) = group_submissions(
        objects(
            "incoming/growth/iris/spec.toml",
            "incoming/growth/iris/b.csv",
            "incoming/growth/iris/a.parquet",
            "incoming/growth/iris/README.md",
            "incoming/growth/iris/_status.json",
            "incoming/growth/iris/_status.md",
            "incoming/growth/iris/.DS_Store",
            "incoming/growth/iris/",
            "registry/jobs/growth/iris.json",
        )
    )
    assert (found.team, found.job, found.issues) == ("growth", "iris", ())
    assert found.spec
    assert found.spec.key == "incoming/growth/iris/spec.toml"
    assert [info.key.rpartition("/")[2] for info in found.files] == ["README.md", "a.parquet", "b.csv"]


def test_what_is_no_submission() -> None:
    keys = ["incoming/", "incoming/growth/", "incoming/growth/iris/", "incoming/growth/iris/README.md"]
    keys += ["incoming/growth/iris/_status.json", "incoming/growth/iris/_status.md", "incoming", "spec.toml"]
    assert group_submissions(objects(*keys)) == []


def test_the_fingerprint_follows_the_files_and_not_the_answers() -> None:
    files = ["incoming/a/b/spec.toml", "incoming/a/b/x.csv"]
    (first,) = group_submissions(objects(*files))
    (answered,) = group_submissions(objects(*reversed(files), "incoming/a/b/_status.json"))
    assert answered.fingerprint == first.fingerprint
    others = [
        group_submissions(objects(files[0])),
        group_submissions(objects(*files, "incoming/a/b/y.csv")),
        group_submissions(objects(*files, etag="other")),
        group_submissions(objects(files[0], "incoming/a/b/renamed.csv")),
    ]
    assert len({first.fingerprint, *(other[0].fingerprint for other in others)}) == 5
    assert not any(first.same_content(other[0].fingerprint) for other in others)


def test_the_fingerprint_of_the_same_file_uploaded_again() -> None:
    files = objects("incoming/a/b/spec.toml", "incoming/a/b/x.csv")
    (first,) = group_submissions(files)
    later = replace(files[1], modified=files[1].modified + timedelta(seconds=1))
    (again,) = group_submissions([files[0], later])
    assert again.fingerprint != first.fingerprint
    assert again.same_content(first.fingerprint)


def test_misplaced_and_misnamed_drops_are_told_so() -> None:
    found = {
        (submission.team, submission.job): submission
        for submission in group_submissions(
            objects(
                "incoming/spec.toml",
                "incoming/growth/spec.toml",
                "incoming/growth/iris/deeper/still/spec.toml",
                "incoming/Growth/My Job/spec.toml",
                "incoming/%2e%2e/x/spec.toml",
                "incoming/growth/ｉｒｉｓ/spec.toml",  # noqa: RUF001
                "incoming/../x/spec.toml",
                "incoming//x/spec.toml",
                "incoming/growth//spec.toml",
                "incoming///spec.toml",
                "incoming/good/good/spec.toml",
            )
        )
    }
    issues = {where: [str(issue) for issue in entry.issues] for where, entry in found.items()}
    assert issues.pop(("good", "good")) == []
    assert len(issues) == 8
    assert all(issues.values())
    assert "directly in 'incoming/'" in issues["", ""][0]
    assert "directly in the folder of team 'growth'" in issues["growth", ""][0]
    assert "move them to incoming/growth/iris/" in issues["growth", "iris/deeper/still"][0]
    assert len(issues["Growth", "My Job"]) == 2
    assert "rename it to 'my-job'" in issues["Growth", "My Job"][1]
    assert "rename it to 'iris'" in issues["growth", "ｉｒｉｓ"][0]  # noqa: RUF001


@given(st.lists(st.text(alphabet="ab/.%\\_\0\n\ud800\u202e spec.tomlcsv", max_size=30), max_size=20))
def test_no_listing_makes_it_fail(rests: list[str]) -> None:
    keys = [*rests, *(f"{rest}/spec.toml" for rest in rests)]
    listing = objects(*(f"incoming/{key}" for key in keys))
    found = group_submissions(listing)
    again = SubmissionListing()
    assert again.update(listing[::2]) == group_submissions(listing[::2])
    assert again.update(listing) == found
    assert len({(entry.team, entry.job) for entry in found}) == len(found)
    for entry in found:
        fit = layout.is_name(entry.team) and layout.is_name(entry.job)
        assert entry.issues or fit
    shuffled = listing[:]
    random.Random(1).shuffle(shuffled)
    if len({info.key for info in listing}) == len(listing):
        assert group_submissions(shuffled) == found


def test_a_thousand_submissions_from_one_listing(tmp_path, monkeypatch) -> None:
    store = open_store(str(tmp_path))
    for number in range(20):
        store.put(f"incoming/growth/job-{number:02d}/spec.toml", b"x")
    calls: list[str] = []
    real = store.list
    monkeypatch.setattr(store, "list", lambda prefix: calls.append(prefix) or real(prefix))
    monkeypatch.setattr(store, "read", None)
    assert [found.job for found in find_submissions(store)] == [f"job-{number:02d}" for number in range(20)]
    assert calls == ["incoming/"]
