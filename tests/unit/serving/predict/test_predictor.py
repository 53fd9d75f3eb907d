from __future__ import annotations

import csv
import gzip
import io
import json
import os
import threading

import numpy as np
import pytest

from dmls_core.data.formats.conversion import converted
from dmls_core.errors import DataError, NotFoundError, ServingError
from dmls_core.serving import Predictor, predict_file
from tests.support.model_folder import LABELS, toy_model_folder

NAME = "lab.iris"


class Sums:
    """Predicts from the sum of a row, so that answers tell rows apart."""

    def __init__(self, n_outputs=3):
        self.n_outputs, self.served, self.sizes, self.gone = n_outputs, 1, [], []

    def versions(self, model):  # noqa: ARG002
        return (self.served,)

    def infer(self, model, rows, *, version, protocol):  # noqa: ARG002
        if version in self.gone:
            raise ServingError("not at ready state")
        self.sizes.append(len(rows))
        total = rows.sum(axis=1)
        if self.n_outputs == 1:
            return total[:, np.newaxis]
        outputs = np.zeros((len(rows), 3), np.float32)
        outputs[np.arange(len(rows)), np.abs(total).astype(int) % 3] = 1.0
        return outputs


@pytest.fixture
def predictor(deployment, repository, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "run"))
    return Predictor(repository, Sums(), NAME)


def run(predictor, tmp_path, content, **options):
    source = tmp_path / "in.csv"
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    out = io.StringIO()
    n_rows = predict_file(predictor, source, out, **options)
    rows = list(csv.reader(io.StringIO(out.getvalue())))
    assert len(rows) == n_rows + 1
    return rows


def test_columns_are_added_and_everything_else_stays(predictor, tmp_path):
    content = '\ufeffid,width,length,note\n007,1.0,0.50,"a, ""b""\nc"\n\n8,2,0.00,\n9,,1e0,é\n'
    rows = run(predictor, tmp_path, content)
    assert rows[0] == [
        "id",
        "width",
        "length",
        "note",
        "prediction",
        *(f"probability_{label}" for label in LABELS),
    ]
    assert rows[1] == ["007", "1.0", "0.50", 'a, "b"\nc', "versicolor", "0.0", "1.0", "0.0"]
    assert rows[2] == ["8", "2", "0.00", "", "virginica", "0.0", "0.0", "1.0"]
    assert rows[3] == ["9", "", "1e0", "é", "versicolor", "0.0", "1.0", "0.0"]


def test_values_out_of_range_are_counted_or_refused(predictor, repository, tmp_path):
    predictor.encoder = predictor.encoder.with_ranges({"length": (0.0, 5.0)})
    run(predictor, tmp_path, "length,width\n" + "1,1\n" * 5_000 + "9,1\n,\n")
    assert predictor.note_counts == {"out-of-range": 1, "empty-row": 1}
    strict = Predictor(repository, Sums(), NAME, strict=True)
    strict.encoder = predictor.encoder
    with pytest.raises(DataError, match="row 5001: 9 is above the range of the training data, 0 to 5"):
        run(strict, tmp_path, "length,width\n" + "1,1\n" * 5_000 + "9,1\n")


def test_a_column_that_is_only_copied_may_have_long_cells(predictor, tmp_path):
    csv.field_size_limit(131_072)  # Python's own limit
    text = "a" * 200_000
    rows = run(predictor, tmp_path, f"width,length,note\n1,2,{text}\n")
    assert rows[1][2] == text


def test_batches_keep_the_order_and_report_progress(predictor, tmp_path):
    content = "length,width\n" + "".join(f"{i},0\n" for i in range(10_000))
    reported: list[float] = []
    rows = run(predictor, tmp_path, content, progress=reported.append)
    assert [row[2] for row in rows[1:]] == [LABELS[i % 3] for i in range(10_000)]
    assert [row[0] for row in rows[1:]] == [str(i) for i in range(10_000)]
    assert reported == sorted(reported)
    assert reported[-1] == 1.0
    assert len(reported) > 1


EUROPEAN = {"delimiter": ";", "decimal": ",", "skip_rows": 1}


def test_a_converted_file_gives_a_plain_csv_and_errors_of_the_original(predictor, tmp_path):
    source, out = tmp_path / "in.csv.gz", io.StringIO()
    source.write_bytes(gzip.compress(b"Report\nlength;width;id\n0,50;1,0;a,b\n;2;c\n"))
    with converted([source], EUROPEAN) as files:
        assert predict_file(predictor, files[0], out) == 2
    rows = list(csv.reader(io.StringIO(out.getvalue())))
    assert rows[0][:4] == ["length", "width", "id", "prediction"]
    assert rows[1][:4] == ["0.50", "1.0", "a,b", "versicolor"]
    assert rows[2][:4] == ["", "2", "c", "virginica"]
    source.write_bytes(gzip.compress(b"Report\nlength;id\n0,50;a\n"))
    with (
        pytest.raises(DataError, match=r"in.csv.gz:.*no column 'width'") as raised,
        converted([source], EUROPEAN) as files,
    ):
        predict_file(predictor, files[0], out)
    assert raised.value.issues[0].file == str(source)


def test_regression_adds_one_column(deployment, repository, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "run", labels=None))
    rows = run(Predictor(repository, Sums(1), NAME), tmp_path, "length,width\n1.5,0.1\n")
    assert rows == [["length", "width", "prediction"], ["1.5", "0.1", "1.6"]]


def test_a_file_without_rows_gets_its_header(predictor, tmp_path):
    assert run(predictor, tmp_path, "length,width\n")[0][2] == "prediction"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line|header and rows"),
        ("length\n1\n", r"in.csv:1: .*no column 'width'"),
        ("length,length,width\n1,2,3\n", "'length' more than once"),
        ("length,width,prediction\n1,2,3\n", "no column of that name"),
        ("length,width\n1,2\n1\n", r"in.csv:3: expected 2, as the header has, found 1 fields"),
        ("length,width\n1,2\n1,2,3\n", r"in.csv:3: .*found 3 fields"),
        ("length,width\n1,2\n1,cat\n", r"in.csv:3:2: column 'width', row 2: 'cat' is not a number$"),
        (b"length,width\n1,\xff\n", "UTF-8"),
        ('length,width\n1,"2\n', "expected CSV"),
    ],
)
def test_errors_name_the_line_of_a_bad_file(predictor, tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        run(predictor, tmp_path, content)


def test_a_target_file_appears_whole_or_not_at_all(predictor, tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("length,width\n1,2\n")
    target.write_text("old")
    assert predict_file(predictor, source, target) == 1
    assert target.read_text().startswith("length,width,prediction")
    source.write_text("length,width\n1,2\n" * 5000)
    with pytest.raises(DataError):
        predict_file(predictor, source, target)
    assert target.read_text().count("\n") == 2
    assert sorted(path.name for path in tmp_path.glob("*out.csv*")) == ["out.csv"]


def test_unreadable_and_unwritable_paths_are_data_errors(predictor, tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        predict_file(predictor, tmp_path / "none.csv", io.StringIO())
    (tmp_path / "in.csv").write_text("length,width\n1,2\n")
    with pytest.raises(DataError, match="cannot be written"):
        predict_file(predictor, tmp_path / "in.csv", tmp_path / "no" / "out.csv")


def test_a_new_version_between_requests_brings_its_own_encoder(deployment, repository, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    client = Sums()
    predictor = Predictor(repository, client, NAME)
    assert predictor.predict({"length": [None], "width": [1]}).values == ["versicolor"]
    folder = toy_model_folder(tmp_path / "b", checkpoint=b"b")
    encoder = json.loads((folder / "encoder.json").read_text())
    encoder["features"][0]["fill"] = 1.0
    (folder / "encoder.json").write_text(json.dumps(encoder))
    deployment.deploy(folder)
    client.served, client.gone = 2, [1]
    answers = predictor.predict({"length": [None], "width": [1]})
    assert (answers.values, answers.version) == (["virginica"], 2)
    client.gone = [1, 2]
    with pytest.raises(ServingError, match="not at ready state"):
        predictor.predict({"length": [None], "width": [1]})


def test_large_inputs_are_split_into_requests(predictor):
    answers = predictor.predict({"length": np.arange(20_000), "width": np.zeros(20_000)})
    assert predictor._client.sizes == [8192, 8192, 3616]
    assert answers.values[:4] == ["setosa", "versicolor", "virginica", "setosa"]
    assert answers.probabilities.shape == (20_000, 3)
    assert predictor.predict({"length": [], "width": []}).values == []


def test_a_model_that_is_not_served_is_not_found(repository, triton):
    with pytest.raises(NotFoundError, match=r"does not serve lab.iris: deploy it first"):
        Predictor(repository, triton, NAME)


def interrupted(predictor, source, target, batches):
    """Predict a file until ``batches`` batches are written."""
    done = []

    def stop(share):
        done.append(share)
        if len(done) == batches:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_file(predictor, source, target, stop)


@pytest.fixture
def long_file(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("length,width,note\n" + "".join(f'{i},0,"line\n{i}"\n' for i in range(10_000)))
    return source


def test_an_interrupted_file_is_resumed(predictor, tmp_path, long_file):
    whole, target = tmp_path / "whole.csv", tmp_path / "out.csv"
    predict_file(predictor, long_file, whole)
    target.write_text("old")
    interrupted(predictor, long_file, target, 2)
    assert target.read_text() == "old"
    with (tmp_path / ".out.csv.partial").open("a") as file:
        file.write("half a batch,")
    predictor._client.sizes, said = [], []
    assert predict_file(predictor, long_file, target, say=said.append) == 10_000
    assert predictor._client.sizes == [10_000 - 2 * 4096]
    assert said == ["resuming after row 8,192, where an earlier call was interrupted"]
    assert target.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob(".out.csv*"))


@pytest.mark.parametrize("what", ["source", "version", "state"])
def test_parts_of_another_origin_are_discarded(predictor, tmp_path, long_file, what):
    target = tmp_path / "out.csv"
    interrupted(predictor, long_file, target, 1)
    if what == "source":
        long_file.write_text(long_file.read_text().replace("\n0,", "\n1,"))
    elif what == "version":
        predictor.version = 7
    else:
        (tmp_path / ".out.csv.partial.json").write_text("{")
    predictor._client.sizes = []
    assert predict_file(predictor, long_file, target) == 10_000
    assert sum(predictor._client.sizes) == 10_000
    assert target.read_text().count("length,width") == 1


def test_two_processes_do_not_write_the_same_file(predictor, tmp_path, long_file):
    target, said = tmp_path / "out.csv", []

    def other(_):
        with pytest.raises(DataError, match="another process is writing this file") as error:
            predict_file(predictor, long_file, target)
        said.append(str(error.value))

    assert predict_file(predictor, long_file, target, other) == 10_000
    assert len(said) == 3
    assert target.read_text().count("length,width") == 1


def test_pipes_can_be_read_and_written(predictor, tmp_path):
    source, target, got = tmp_path / "in", tmp_path / "out", []
    for pipe in (source, target):
        os.mkfifo(pipe)
    ends = [
        threading.Thread(target=source.write_text, args=["length,width\n1,2\n"], daemon=True),
        threading.Thread(target=lambda: got.append(target.read_text()), daemon=True),
    ]
    for end in ends:
        end.start()
    assert predict_file(predictor, source, target) == 1
    for end in ends:
        end.join()
    assert got[0].startswith("length,width,prediction")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_fifo()) == ["in", "out"]
    assert not list(tmp_path.glob(".out*"))


def test_a_link_to_the_target_stays_one(predictor, tmp_path):
    (tmp_path / "in.csv").write_text("length,width\n1,2\n")
    (tmp_path / "link.csv").symlink_to("real.csv")
    assert predict_file(predictor, tmp_path / "in.csv", tmp_path / "link.csv") == 1
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().count("\n") == 2
