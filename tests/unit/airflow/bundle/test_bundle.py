"""The bundle: from the registry to DAG files, version by version."""

from __future__ import annotations

import json
import re
import time
from contextlib import nullcontext
from typing import Any

import pytest

from dmls_core.airflow import database as metadata
from dmls_core.airflow.bundle.dag_files import EMPTY
from dmls_core.airflow.jobs.job_dag import build_dag
from dmls_core.airflow.shards import dag_ids, read_shard, written_jobs
from dmls_core.errors import StoreError
from dmls_core.store import Registry, layout, open_store
from dmls_core.store.local import LocalStore


@pytest.fixture(autouse=True)
def _settings(bundle, monkeypatch):
    """Let a pinned version find the store of the test."""
    monkeypatch.setattr("dmls_core.airflow.shards.airflow_settings", lambda: bundle().settings)


@pytest.fixture(autouse=True)
def database(monkeypatch) -> dict[str, Any]:
    """Return what Airflow's database has: ``runs`` and ``files``."""
    found: dict[str, Any] = {"runs": [], "files": {}}
    monkeypatch.setattr(metadata, "create_session", lambda **_: nullcontext())
    monkeypatch.setattr(metadata, "dag_files", lambda *_: found["files"])
    monkeypatch.setattr(metadata, "unwatched_dags", lambda _: {})
    monkeypatch.setattr(metadata, "unfinished_runs", lambda _: found["runs"])
    monkeypatch.setattr(metadata, "runs_ahead", lambda *_: {})
    monkeypatch.setattr(metadata, "unanswered_approvals", lambda _: set())
    return found


def shard_of(folder, dag_id):
    (path,) = [p for p in folder.glob("shard_*.json") if dag_id in json.loads(p.read_text())]
    return path


def test_an_accepted_job_becomes_a_shard_file(accept, bundle):
    record = accept("lab", "iris")
    made = bundle()
    made.initialize()

    entry = json.loads(shard_of(made.path, "dmls.lab.iris").read_text())["dmls.lab.iris"]

    assert entry["record"]["run_key"] == record.run_key
    assert entry["spec"]["n_trials"] == 5
    assert (made.path / "dmls_intake.py").is_file()
    assert re.fullmatch(r"[0-9a-f]{16}", made.get_current_version().version)


def test_refresh_touches_only_the_shard_that_changed(accept, bundle):
    for number in range(12):
        accept("lab", f"job{number}")
    made = bundle()
    made.initialize()
    before = {p.name: p.stat().st_mtime_ns for p in made.path.glob("*.py")}

    accept("lab", "job3", content=b"a,b,y\n5,6,z\n")
    made.refresh()

    after = {p.name: p.stat().st_mtime_ns for p in made.path.glob("*.py")}
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {shard_of(made.path, "dmls.lab.job3").with_suffix(".py").name}


def test_roles_of_fab_get_the_dags_of_their_team_alone(accept, bundle, monkeypatch):
    """A role that FAB lacks would have Airflow refuse every DAG of the shard."""
    known = {"lab"}
    monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "airflow.providers.fab.auth_manager.FabAuthManager")
    monkeypatch.setattr(metadata, "fab_roles", lambda _: known)
    for team in ("lab", "shop"):
        accept(team, "iris")
    made = bundle()
    roles = {"lab": {"lab": ["can_read", "can_edit"], "guests": ["can_read"]}}
    made.settings = made.settings.model_copy(update={"access_control": roles})
    made.initialize()

    def granted(team: str) -> Any:
        dag_id = f"dmls.{team}.iris"
        entry = json.loads(shard_of(made.path, dag_id).read_text())[dag_id]
        return build_dag(dag_id, entry).access_control

    assert granted("lab") is None, "the first time there may be no database"
    made._refresh()
    assert granted("lab") == {"lab": {"DAGs": ["can_edit", "can_read"]}}
    known.add("guests")
    made._refresh()
    assert granted("lab")["guests"] == {"DAGs": ["can_read"]}
    assert granted("shop") is None
    monkeypatch.delenv("AIRFLOW__CORE__AUTH_MANAGER")
    made._refresh()
    assert granted("lab") is None, "no FAB"


def test_refresh_without_a_change_writes_nothing(accept, bundle):
    accept("lab", "iris")
    made = bundle()
    made.initialize()
    before = {p: p.stat().st_mtime_ns for p in made.path.iterdir()}

    made.refresh()

    assert {p: p.stat().st_mtime_ns for p in made.path.iterdir()} == before


def test_a_worker_gets_the_version_that_its_run_began_with(accept, bundle, root):
    first = accept("lab", "iris")
    made = bundle()
    made.initialize()
    version = made.get_current_version().version
    second = accept("lab", "iris", content=b"a,b,y\n9,9,q\n")
    made.refresh()

    worker = bundle(version=version, folder="another-machine")
    worker.initialize()

    shard = worker.path / shard_of(made.path, "dmls.lab.iris").name
    assert shard.with_suffix(".py").is_file()
    pinned = read_shard(str(shard), "dmls.lab.iris")["dmls.lab.iris"]["record"]
    latest = json.loads(shard_of(made.path, "dmls.lab.iris").read_text())["dmls.lab.iris"]["record"]
    assert (pinned["run_key"], pinned["version"]) == (first.run_key, 1)
    assert (latest["run_key"], latest["version"]) == (second.run_key, 2)


def test_two_machines_write_the_same_files(accept, bundle):
    for number in range(9):
        accept("lab", f"job{number}")
    one, two = bundle(folder="one"), bundle(folder="two")
    one.initialize()
    two.initialize()

    assert {p.name: p.read_bytes() for p in one.path.iterdir() if p.is_file()} == {
        p.name: p.read_bytes() for p in two.path.iterdir() if p.is_file()
    }


def test_a_retired_job_leaves_and_the_others_stay(accept, bundle, root):
    accept("lab", "iris")
    accept("lab", "wine")
    made = bundle()
    made.initialize()

    Registry(open_store(str(root))).retire("lab", "wine")
    made.refresh()

    found = {dag_id for p in made.path.glob("shard_*.json") for dag_id in json.loads(p.read_text())}
    assert found == {"dmls.lab.iris"}


def test_a_retired_job_stays_without_a_schedule_until_its_run_has_ended(accept, bundle, root, database):
    accept("lab", "iris")
    accept("lab", "wine")
    made = bundle()
    made.initialize()
    made.refresh()

    Registry(open_store(str(root))).retire("lab", "wine")
    database["runs"] = [("dmls.lab.wine", "running", False), ("dmls.lab.iris", "running", False)]
    made.refresh()

    entry = json.loads(shard_of(made.path, "dmls.lab.wine").read_text())["dmls.lab.wine"]
    assert entry["record"]["state"] == "retired"
    assert build_dag("dmls.lab.wine", entry).schedule is None
    assert dag_ids(made.path) == {"dmls.lab.iris", "dmls.lab.wine"}

    database["runs"] = [("dmls.lab.wine", "queued", False)]
    made.refresh()
    assert dag_ids(made.path) == {"dmls.lab.iris"}


def test_a_damaged_spec_gets_a_file_that_says_so(accept, bundle, root):
    record = accept("lab", "bad", spec=b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n')
    accept("lab", "iris")
    (root / "registry" / "specs" / f"{record.spec_sha256}.json").write_text("[" * 100_000)
    made = bundle()
    made.initialize()

    assert shard_of(made.path, "dmls.lab.iris")
    (stub,) = made.path.glob("rejected_*.py")
    assert "lab/bad: its accepted spec" in stub.read_text()
    assert "raise ValueError" in stub.read_text()


def test_a_shard_that_may_have_changed_during_its_parse_is_parsed_once_more(accept, bundle, monkeypatch):
    for number in range(12):
        accept("lab", f"job{number}")
    made = bundle()
    made.initialize()
    accept("lab", "job3", content=b"a,b,y\n5,6,z\n")
    made.refresh()
    before = {path: path.stat().st_mtime_ns for path in made.path.glob("*.py")}

    later = time.monotonic() + 30
    monkeypatch.setattr("dmls_core.airflow.bundle.bundle.time.monotonic", lambda: later)
    made.refresh()
    after = {path: path.stat().st_mtime_ns for path in before}
    touched = {path for path in after if after[path] != before[path]}
    assert touched == {shard_of(made.path, "dmls.lab.job3").with_suffix(".py")}

    made.refresh()
    assert {path: path.stat().st_mtime_ns for path in after} == after


def test_a_shard_that_lost_a_job_is_parsed_once_more(accept, bundle, root, monkeypatch):
    for number in range(12):
        accept("lab", f"job{number}")
    made = bundle()
    made.initialize()
    made.refresh()
    file = shard_of(made.path, "dmls.lab.job3").with_suffix(".py")

    Registry(open_store(str(root))).retire("lab", "job3")
    made.refresh()
    after_removal = file.stat().st_mtime_ns
    made.refresh()
    assert file.stat().st_mtime_ns == after_removal

    later = time.monotonic() + 120
    monkeypatch.setattr("dmls_core.airflow.bundle.bundle.time.monotonic", lambda: later)
    made.refresh()
    touched = file.stat().st_mtime_ns
    assert touched > after_removal
    made.refresh()
    assert file.stat().st_mtime_ns == touched


def test_a_spec_that_the_store_did_not_give_once_is_asked_for_again(accept, bundle, root, monkeypatch):
    record = accept("lab", "iris")
    accept("lab", "wine", spec=b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n')
    asked, away = LocalStore.get, layout.spec(record.spec_sha256)

    def get(store, key):
        if key == away:
            raise StoreError("503 Slow Down")
        return asked(store, key)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "get", get)
        made = bundle()
        made.initialize()
        version = made.get_current_version().version
        assert dag_ids(made.path) == {"dmls.lab.wine"}
        listed = {path.name for path in made.path.glob("*.py")}
        worker = bundle(version=version, folder="another-machine")
        worker.initialize()
        with pytest.raises(StoreError, match="503 Slow Down"):
            read_shard(str(worker.path / "shard_00.py"), "dmls.lab.iris")

    made.refresh()

    assert made.get_current_version().version == version
    assert dag_ids(made.path) == {"dmls.lab.iris", "dmls.lab.wine"}
    assert {path.name for path in made.path.glob("*.py")} == listed, (
        "Airflow lists the files of a version once"
    )
    assert [path.read_text() for path in made.path.glob("rejected_*.py")] == [EMPTY]
    assert read_shard(str(worker.path / "shard_00.py"), "dmls.lab.iris")


def test_a_worker_fetches_the_job_of_its_task_once(accept, bundle, monkeypatch):
    for number in range(100):
        accept("lab", f"job{number}")
    made = bundle()
    made.initialize()
    worker = bundle(version=made.get_current_version().version, folder="another-machine")
    worker.initialize()
    shard = worker.path / shard_of(made.path, "dmls.lab.job7").name

    first = read_shard(str(shard), "dmls.lab.job7")
    with monkeypatch.context() as patch:
        patch.setattr("dmls_core.airflow.shards.open_root", None)
        assert read_shard(str(shard), "dmls.lab.job7") == first

    everything = json.loads(shard_of(made.path, "dmls.lab.job7").read_text())
    assert first == {"dmls.lab.job7": everything["dmls.lab.job7"]}
    assert read_shard(str(shard), None) == everything
    assert read_shard(str(shard), "dmls.lab.other") == {}


def test_a_team_with_an_entry_of_its_own_has_a_bundle_of_its_own(accept, bundle, monkeypatch):
    for team in ("lab", "shop"):
        accept(team, "iris")
    monkeypatch.setattr("dmls_core.airflow.bundle.bundle.team_entries", lambda: {"shop": "shop"})
    rest, shop = bundle(folder="rest"), bundle(folder="shop")
    shop.settings = shop.settings.model_copy(update={"team": "shop"})
    for made in (rest, shop):
        made.initialize()
    assert (dag_ids(rest.path), dag_ids(shop.path)) == ({"dmls.lab.iris"}, {"dmls.shop.iris"})
    assert (rest.path / "dmls_intake.py").is_file()
    assert list(shop.path.glob("dmls_*.py")) == []
    shop.refresh()
    assert dag_ids(shop.path) == {"dmls.shop.iris"}


def test_the_registry_is_listed_once_a_minute_and_after_changes_that_are_not_named(
    accept, bundle, root, monkeypatch
):
    accept("lab", "iris")
    made, listed, real = bundle(), [], LocalStore.list
    monkeypatch.setattr(
        LocalStore, "list", lambda store, prefix: listed.append(prefix) or real(store, prefix)
    )
    made.initialize()
    made.refresh()
    assert listed == [layout.JOBS]

    accept("lab", "wine")
    made.refresh()
    assert dag_ids(made.path) == {"dmls.lab.iris", "dmls.lab.wine"}
    assert listed.count(layout.JOBS) == 1

    monkeypatch.setattr("dmls_core.store.registry.MAX_CHANGES", 1)
    accept("lab", "cars")
    accept("lab", "wine", content=b"a,b,y\n9,9,q\n")
    made.refresh()
    assert dag_ids(made.path) == {"dmls.lab.cars", "dmls.lab.iris", "dmls.lab.wine"}
    assert listed.count(layout.JOBS) == 2

    (root / "registry" / "change.json").unlink()
    accept("lab", "cars", content=b"a,b,y\n9,9,q\n")
    made.refresh()
    assert (
        json.loads(shard_of(made.path, "dmls.lab.cars").read_text())["dmls.lab.cars"]["record"]["version"]
        == 2
    )
    assert listed.count(layout.JOBS) == 3

    (root / "registry" / "jobs" / "lab" / "wine.json").unlink()  # by an operator
    made.refresh()
    assert listed.count(layout.JOBS) == 3
    later = time.monotonic() + 60
    monkeypatch.setattr("dmls_core.airflow.bundle.bundle.time.monotonic", lambda: later)
    made.refresh()
    assert dag_ids(made.path) == {"dmls.lab.cars", "dmls.lab.iris"}


def test_a_dag_stays_in_its_former_file_until_airflow_has_it_from_its_own(
    accept, bundle, database, monkeypatch
):
    """Airflow would take it for deleted, and not schedule it, if the former file was parsed first."""
    for number in range(12):
        accept("lab", f"job{number}")
    job = "dmls.lab.job3"
    made = bundle()
    made.initialize()
    own = shard_of(made.path, job).with_suffix(".py")
    former = made.path / "shard_77.py"
    database["files"] = {job: former.name, "dmls.lab.gone": "shard_78.py"}
    made.refresh()
    assert [job in path.read_text() for path in (own.with_suffix(".json"), former.with_suffix(".json"))] == [
        True,
        True,
    ]
    assert former.is_file()
    before = own.stat().st_mtime_ns

    later = time.monotonic() + 61
    monkeypatch.setattr("dmls_core.airflow.bundle.bundle.time.monotonic", lambda: later)
    made.refresh()
    assert own.stat().st_mtime_ns > before, "it is parsed again until Airflow has the DAG from it"
    assert former.is_file()

    database["files"] = {job: own.name}
    made.refresh()
    assert shard_of(made.path, job).with_suffix(".py") == own
    assert former.read_text() == EMPTY, "Airflow complains of a missing file until it lists them again"
    assert not former.with_suffix(".json").exists()

    database["files"] = {job: former.name}
    made.refresh()
    assert former.read_text() == EMPTY, "Airflow is asked until all DAGs have moved"
    accept("lab", "more")
    made.refresh()
    assert not former.exists()


def test_a_pinned_version_of_an_earlier_release_gets_the_files_that_it_lacks(accept, bundle):
    accept("lab", "iris")
    made = bundle()
    made.initialize()
    version = made.get_current_version().version
    worker = bundle(version=version, folder="worker")
    worker.initialize()
    (worker.path / "shard_03.py").unlink()
    bundle(version=version, folder="worker").initialize()
    assert (worker.path / "shard_03.py").is_file()


def test_a_new_dag_processor_reads_the_records_of_its_files(accept, bundle):
    accept("lab", "iris")
    made = bundle()
    made.initialize()
    again = bundle()
    again.initialize()
    again._refresh()
    assert [record.name for record, _ in written_jobs(again.path)] == ["iris"]
    (shard_of(made.path, "dmls.lab.iris")).write_text('{"dmls.lab.iris":{"record":{"schema":9}}}')
    assert written_jobs(again.path) == []
