"""``dmls validate``, ``schema``, ``init`` and ``plan``."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dmls_core.cli.main import app
from dmls_core.errors import SpecError, SubmissionError


def test_a_valid_spec_with_its_data(dmls, files):
    done = dmls("validate", *files)
    assert done.code == 0, done.err
    assert "valid" in done.out
    assert "random-forest-classifier" in done.out


def test_json_holds_the_spec_with_its_defaults(dmls, files):
    done = dmls("validate", files[0], "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["valid"], answer["errors"]) == (0, True, [])
    assert answer["spec"]["deploy"]["mode"] == "manual"


def test_notes_on_the_data_are_the_same_before_and_after_the_spec(dmls, tmp_path):
    """``init`` drafts a spec without the useless columns, and ``validate`` says the same of it."""
    table, spec = tmp_path / "p.csv", tmp_path / "spec.toml"
    rows = [f"c-{row},{row % 2},{row * 37 % 100},{'no' if row % 2 else 'yes'},AT" for row in range(60)]
    table.write_text("\n".join(["customer_id,copy,age,survived,country", *rows]) + "\n")
    drafted = dmls("init", table, "--target", "survived")
    spec.write_text(drafted.out)
    checked = json.loads(dmls("validate", spec, table, "--json").out)
    assert checked["valid"]
    assert checked["notes"][0].startswith("copy and survived hold the same information")
    assert checked["notes"][1].startswith("Left out of the training: customer_id (an ID")
    assert "country (one value in all rows)." in checked["notes"][1]
    shown = " ".join(drafted.err.split())
    assert all(note in shown for note in checked["notes"])
    printed = " ".join(dmls("validate", spec, table).err.split())
    assert all(note in printed for note in checked["notes"])


def test_data_in_a_pipe_or_a_device_is_refused(dmls, files, tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for path in ("/dev/null", pipe):
        for command in (["validate", files[0]], ["init"]):
            done = dmls(*command, path)
            assert done.code == 1
            assert (
                f"{path}: error: this is a pipe or a device\n    hint: write its content to a file"
                in done.err
            )


def test_a_spec_without_end_is_refused(dmls):
    done = dmls("validate", "/dev/zero")
    assert done.code == 1
    assert "/dev/zero:1:1: error: is too large" in done.err


def test_all_errors_of_a_spec_at_once(dmls, files):
    spec, _ = files
    spec.write_text(
        spec.read_text().replace("[n_estimators]", "[n_estimater]").replace("n_trials = 2", "n_trials = 0")
    )
    done = dmls("validate", *files)
    assert done.code == 1
    assert f"{spec}:2:" in done.err
    assert "did you mean n_estimators?" in done.err
    assert "2 issues" in done.err


def test_errors_as_json(dmls, files):
    spec, _ = files
    spec.write_text("model = 3")
    done = dmls("validate", spec, "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["valid"], answer["spec"]) == (1, False, None)
    assert answer["errors"][0]["file"] == str(spec)


def test_data_that_lacks_the_target(dmls, files):
    spec, table = files
    table.write_text("a,b\n1,2\n")
    done = dmls("validate", spec, table)
    assert done.code == 1
    assert "y" in done.err


def test_data_by_another_name_than_the_spec_asks_for(dmls, files):
    spec, table = files
    spec.write_text(spec.read_text() + '[data]\npath = "train-*.csv"\n')
    done = dmls("validate", spec, table)
    assert done.code == 1
    assert "train-*.csv" in done.err


def test_a_missing_file_is_wrong_usage(dmls):
    assert dmls("validate", "nowhere.toml").code == 2


def test_schema_is_json_schema(dmls):
    schema = json.loads(dmls("schema").out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "columns" in schema["properties"]


def test_a_first_spec_is_valid_as_it_stands(dmls, files):
    spec, data = files
    done = dmls("init", data)
    assert done.code == 0, done.err
    assert "inferred target: y" in done.err
    spec.write_text(done.out)
    assert dmls("validate", spec, data).code == 0


def test_a_first_spec_of_what_is_no_table(dmls, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("a,b\n1\n")
    done = dmls("init", table)
    assert done.code == 1
    assert "too few cells" in done.err


def test_a_first_spec_reads_the_file_as_it_is_written(dmls, tmp_path):
    table, spec = tmp_path / "a.csv", tmp_path / "spec.toml"
    table.write_bytes("größe;y\n1,5;u\n2,5;v\n".encode("cp1252") + b"1,5;u\n2,5;v\n" * 9)
    done = dmls("init", table, "--target", "y")
    assert done.code == 0, done.err
    assert 'delimiter = ";"' in done.out
    assert 'encoding = "windows-1252"' in done.out
    spec.write_text(done.out)
    assert dmls("validate", spec, table).code == 0
    spec.write_text(re.sub(r"\[data\]\n(.+\n)+", "", done.out))
    refused = dmls("validate", spec, table)
    assert refused.code == 1
    assert 'delimiter = ";", decimal = ","' in refused.err.replace("\n", " ")


def test_data_behind_a_link_is_looked_at_too(dmls, files, tmp_path):
    spec, table = files
    link = tmp_path / "tides" / "link.csv"
    link.symlink_to("cache")
    table.rename(table.with_name("cache"))
    assert dmls("validate", spec, link).code == 0
    table.with_name("cache").write_text("a;b;y\n1;2;yes\n")
    done = dmls("validate", spec, link)
    assert done.code == 1
    assert "link.csv:1" in done.err
    assert "semicolons" in done.err


def test_a_first_spec_has_the_names_of_the_file(dmls, tmp_path):
    table = tmp_path / "visits.csv"
    rows = "\n".join(f"{n * 7 % 9},{n % 7},{'yes' if n % 3 else 'no'}" for n in range(60))
    table.write_text(f"user:id:hash,a\u202eb,left\n{rows}\n")
    spec = tmp_path / "spec.toml"
    spec.write_text(dmls("init", table, "--target", "left").out)
    assert '"user:id:hash"' in spec.read_text()
    assert r'"a\u202eb"' in spec.read_text()
    assert dmls("validate", spec, table).code == 0


def test_a_path_is_no_markup(dmls, files):
    spec = files[0].rename(files[0].with_name("a[old].toml"))
    assert "a[old].toml" in dmls("validate", spec).out


def test_json_is_json_whatever_the_terminal_can_show(tmp_path):
    (tmp_path / "h\u00f6he.toml").write_text("model = 3")
    done = subprocess.run(
        [sys.executable, "-m", "dmls_core.cli", "validate", "--json", "h\u00f6he.toml"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        capture_output=True,
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["errors"][0]["file"] == "h\u00f6he.toml"


SPEC = """model = {model}
n_trials = 8
[columns]
target = "y"
{rest}
"""
ROWS = 600


@pytest.fixture
def data(tmp_path: Path) -> Path:
    draw = random.Random(3)
    lines = ["a,b,c,y"]
    for _ in range(ROWS):
        a, b, c = (draw.gauss(0, 1) for _ in range(3))
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{'high' if a + b > 0 else 'low'}")
    path = tmp_path / "data.csv"
    path.write_text("\n".join(lines))
    return path


def plan(tmp_path: Path, data: Path, rest: str = "", model: str = '"random-forest-classifier"') -> dict:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(model=model, rest=rest))
    done = CliRunner().invoke(app, ["plan", str(spec), str(data), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_it_tells_rows_engine_and_what_is_searched(tmp_path: Path, data: Path) -> None:
    found = plan(tmp_path, data, "[n_estimators]\nmin = 10\nmax = 40\n[max_depth]\nvalue = 3")
    assert (found["rows"], found["features"], found["trials"]) == (ROWS, 3, 1), "one forest scores all sizes"
    assert found["matrix_bytes"] == ROWS * 3 * 4
    (model,) = found["models"]
    assert model["name"] == "random-forest-classifier"
    assert model["searched"] == ["n_estimators"]
    assert model["engine"] in ("cpu", "gpu")
    assert found["seconds"] >= found["load_seconds"] > 0
    assert found["memory_bytes"] > found["matrix_bytes"]


def test_a_larger_space_needs_a_larger_model(tmp_path: Path, data: Path) -> None:
    small, large = (
        plan(tmp_path, data, f"[n_estimators]\nmin = 5\nmax = {most}")["models"][0] for most in (10, 1_000)
    )
    assert large["model_bytes"] > 20 * small["model_bytes"]
    assert large["fit_seconds"] > small["fit_seconds"]


def test_a_limit_that_is_too_low_is_warnings(tmp_path: Path, data: Path) -> None:
    rest = '[n_estimators]\nmin = 100\nmax = 5000\n[search]\ntimeout = 0.001\n[resources]\nmemory = "300m"'
    warnings = " ".join(plan(tmp_path, data, rest)["warnings"])
    assert "[search] timeout 0.001 s ends the search early" in warnings
    assert "[resources] memory 300m is less than the run needs" in warnings


def test_people_get_lines(tmp_path: Path, data: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(model='"lightgbm-classifier"', rest=""))
    done = CliRunner().invoke(app, ["plan", str(spec), str(data)], catch_exceptions=False)
    assert done.exit_code == 0
    assert f"{ROWS} rows, 3 features" in done.stdout
    assert "lightgbm-classifier" in done.stdout


def test_what_is_wrong_is_warnings_as_at_admission(tmp_path: Path, data: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(model='"random-forest"', rest=""))
    with pytest.raises(SpecError, match="did you mean"):
        CliRunner().invoke(app, ["plan", str(spec), str(data)], catch_exceptions=False)
    spec.write_text(SPEC.format(model='"random-forest-classifier"', rest="").replace('"y"', '"z"'))
    with pytest.raises(SubmissionError, match="z"):
        CliRunner().invoke(app, ["plan", str(spec), str(data)], catch_exceptions=False)
