"""The champion, asked about the challenger's holdout, from its own files."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmls_core.data.formats.data_files import content_hash
from dmls_core.models import CATALOGUE, load_spec
from dmls_core.models.catalogue import load_engine
from dmls_core.spec import Spec
from dmls_core.training.champion import fetch_champion
from dmls_core.training.comparison import compare_with_champion
from dmls_core.training.model_folder import export_model
from dmls_core.training.pipeline import describe_data
from dmls_core.training.prepare import make_task, prepare
from dmls_core.training.request import RequestedModel, TrainingJob, TrainRequest, cut_data, fetch_data

SPEC = """model = "random-forest-classifier"
n_trials = 1
[columns]
target = "y"
{columns}
[n_estimators]
value = {trees}
[search]
seed = {seed}
"""
FEATURES = 'features = ["a", "kind"]'


def write_rows(
    file: Path,
    *,
    flipped: bool = False,
    rows: int = 150,
    seed: int = 0,
    labels: tuple[str, ...] = ("no", "yes"),
) -> str:
    generator = np.random.default_rng(seed)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["a", "kind", "day", "y"])
        for row in range(rows):
            value = float(generator.normal())
            label = labels[((value > 0) != flipped) + (2 if row % 5 == 0 and labels[2:] else 0)]
            day = f"2026-01-{1 + row * 28 // rows:02d}"
            writer.writerow([round(value, 4), generator.choice(["x", "z"]), day, label])
    return str(file)


def run(
    folder: Path,
    name: str,
    data: Sequence[str],
    *,
    trees: int = 5,
    seed: int = 0,
    columns: str = FEATURES,
    until: datetime | None = None,
) -> dict[str, Any] | None:
    """Train without a search, as a run does; write what a later challenger reads; return ``comparison``.

    The run in ``champion`` is the champion, if it is there.
    """
    spec: Spec = load_spec(SPEC.format(trees=trees, seed=seed, columns=columns).encode())
    champion = folder / "champion"
    request = TrainRequest(
        "spec.toml",
        tuple(data),
        str(folder / name),
        until=until,
        champion=str(champion) if champion.is_dir() else "",
        champion_version=3,
    )
    scratch = folder / f"{name}-scratch"
    files = fetch_data(data, (), scratch)
    if until and spec.columns.time:
        files = cut_data(files, spec, None, until, scratch / "cut")
    (scratch / "out").mkdir(parents=True)
    model = CATALOGUE[spec.model]
    models = (RequestedModel(model, "cpu", dict(spec.models[0].hyperparameters)),)
    job = TrainingJob(request, spec, models, "0" * 16, files, scratch / "out")
    champion = fetch_champion(job) if request.champion else None
    prepared = prepare(spec, model, [file.path for file in files], champion=champion)
    engine = load_engine("cpu", model.name)
    problem = make_task(spec, model, engine, prepared)
    fitted = engine.fit(
        model,
        spec.models[0].fixed,
        problem.features,
        problem.target,
        n_classes=problem.n_classes,
        seed=0,
        threads=1,
    )
    out = folder / name
    own = fitted.predict(engine.place(prepared.test))
    served = export_model(
        engine, fitted, prepared.test, own, prepared.test[:0], out / "model", threads=1
    ).predictions
    (out / "model" / "encoder.json").write_text(json.dumps(prepared.encoder.as_json()))
    (out / "model" / "model.json").write_text(json.dumps({"format": engine.export_format}))
    sums = [
        {"name": f"model/{path.name}", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in (out / "model").iterdir()
    ]
    result = {"run_key": name, "data": describe_data(job, prepared), "artifacts": sums}
    assert result["data"]["hash"] == content_hash([file.path for file in files])
    (out / "result.json").write_text(json.dumps(result))
    return compare_with_champion(spec, prepared, served, prepared.champion)


def against(folder: Path, *data: str, **changes: Any) -> dict[str, Any]:
    found = run(folder, "challenger", data, **{"trees": 6, **changes})
    assert found is not None
    return found


@pytest.fixture
def champion(tmp_path: Path) -> Path:
    """The folder of a champion that learnt from ``first.csv``."""
    assert run(tmp_path, "champion", [write_rows(tmp_path / "first.csv")]) is None
    return tmp_path


def test_where_the_world_has_turned_the_challenger_wins(champion: Path):
    found = against(champion, write_rows(champion / "turned.csv", flipped=True, seed=1))

    assert (found["champion_version"], found["champion_run_key"]) == (3, "champion")
    assert (found["rows"], found["fresh"]) == (30, "unknown")
    assert found["champion_score"] < 0.2 < 0.8 < found["challenger_score"]
    assert (found["better"], found["probability"]) == (True, 1.0)
    assert json.loads(json.dumps(found)) == found


def test_on_the_same_data_and_split_the_holdout_is_new_to_both(champion: Path):
    found = against(champion, str(champion / "first.csv"))
    assert (found["fresh"], found["comparable"]) == ("all", True)


def test_another_split_of_the_same_data_is_not_new_to_the_champion(champion: Path):
    found = against(champion, str(champion / "first.csv"), seed=5)
    assert found["fresh"] == "none"
    assert "favors" in found["reason"]


def test_columns_that_it_does_not_find_make_it_not_comparable(champion: Path):
    found = against(champion, str(champion / "first.csv"), columns='features = ["a"]')
    assert (found["comparable"], found["better"], found["rows"]) == (False, False, 0)
    assert "columns are missing: 'kind'" in found["reason"]


def test_more_columns_in_another_order_and_more_classes_are_no_hindrance(champion: Path):
    data = write_rows(champion / "more.csv", labels=("no", "yes", "maybe", "perhaps"), seed=2, rows=300)
    found = against(champion, data, columns='features = ["day", "kind", "a"]\ncategorical = ["day"]')
    assert found["comparable"]
    # It has never seen the classes of a fifth of the rows, and knows the others.
    assert 0.7 < found["champion_score"] < 0.9


def test_a_column_of_numbers_that_became_texts_is_not_comparable(champion: Path):
    head, *rows = (champion / "first.csv").read_text().splitlines()
    texts = champion / "texts.csv"
    texts.write_text("\n".join([head, *(f"about {row}" for row in rows)]))

    found = against(champion, str(texts), columns=FEATURES + '\ncategorical = ["a"]')

    assert not found["comparable"]
    assert "is not a number" in found["reason"]


def test_categories_that_are_all_numbers_are_read_as_numbers(champion: Path):
    found = against(champion, str(champion / "first.csv"), columns=FEATURES + '\ncategorical = ["a"]')
    assert found["comparable"]
    assert found["champion_score"] > 0.9


def test_files_that_were_changed_are_not_loaded(champion: Path):
    (champion / "champion" / "model" / "checkpoint.tl").write_bytes(b"something else")
    found = against(champion, str(champion / "first.csv"))
    assert not found["comparable"]
    assert "not the file that its trainer wrote" in found["reason"]


def test_a_champion_that_is_gone_fails_no_training(tmp_path: Path):
    (tmp_path / "champion").mkdir()
    found = against(tmp_path, write_rows(tmp_path / "first.csv"))
    assert not found["comparable"]
    assert "files cannot be read" in found["reason"]


def test_of_a_window_only_rows_of_files_new_to_the_champion_count(tmp_path: Path):
    old, new = write_rows(tmp_path / "old.csv"), write_rows(tmp_path / "new.csv", seed=7, rows=400)
    run(tmp_path, "champion", [old], until=datetime(2026, 2, 1, tzinfo=UTC))

    found = against(tmp_path, old, new, until=datetime(2026, 3, 1, tzinfo=UTC))

    # A fifth of 550 rows is held out, 400 of them are new.
    assert found["fresh"] == "some"
    assert 60 <= found["rows"] <= 100


def test_of_a_growing_file_only_rows_after_the_champions_interval_count(tmp_path: Path):
    data, columns = write_rows(tmp_path / "growing.csv", rows=600), FEATURES + '\ntime = "day"'
    run(tmp_path, "champion", [data], columns=columns, until=datetime(2026, 1, 15, tzinfo=UTC))

    found = against(tmp_path, data, columns=columns, until=datetime(2026, 2, 1, tzinfo=UTC))

    # Half of the 120 held-out rows, about.
    assert found["fresh"] == "some"
    assert 40 <= found["rows"] <= 80


BY_TIME = FEATURES + '\ntime = "day"\n[evaluation]\nsplit = "time"'


def test_rows_after_a_champions_holdout_began_are_new_to_it(tmp_path):
    data = write_rows(tmp_path / "data.csv", rows=400)
    run(tmp_path, "champion", [data], columns=BY_TIME)
    lines = Path(data).read_text().splitlines()
    Path(data).write_text(
        "\n".join([*lines, *(f"{0.5 - at % 2},x,2026-01-{26 + at % 3},no" for at in range(90))])
    )

    found = run(tmp_path, "challenger", [data], columns=BY_TIME)

    assert found["fresh"] == "all"
    split = json.loads((tmp_path / "champion" / "result.json").read_text())["data"]["split"]
    assert split["since"][:10] == "2026-01-23"

    again = run(tmp_path, "other", [data], columns=BY_TIME + "\nholdout = 0.5")
    assert again["fresh"] == "some"  # of its holdout, the champion was trained on the first part


def test_other_groups_are_another_holdout(tmp_path):
    data = write_rows(tmp_path / "data.csv")
    run(tmp_path, "champion", [data])
    assert run(tmp_path, "same", [data])["fresh"] == "all"
    grouped = FEATURES + '\ngroup = "day"\n[evaluation]\nholdout = 0.2'
    assert run(tmp_path, "grouped", [data], columns=grouped)["fresh"] == "none"
