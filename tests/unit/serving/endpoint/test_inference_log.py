"""What Triton's process writes of its requests: a sample, bounded, and never at a request's cost."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

from dmls_core.serving.endpoint import inference_log as log
from dmls_core.serving.endpoint.inference_log import RequestLog

LABELS = ["no", "yes"]


def table(n_rows, first=0):
    numbers = np.arange(first, first + n_rows, dtype=np.float64)
    texts = np.empty(n_rows, dtype=object)
    texts[:] = [f"text {number:.0f}".encode() for number in numbers]
    return {"size": numbers, "who": texts}


def outputs(n_rows):
    return np.tile(np.array([[0.25, 0.75]], np.float32), (n_rows, 1))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "lab.parts"


def entries(folder):
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.open()]


def test_rows_are_written_with_id_version_time_and_answer(folder):
    kept = RequestLog(folder, 1.0, [])
    before = time.time()
    kept.add("order 7", 3, table(2), LABELS, outputs(2))
    kept.add("", 3, table(1, first=9), None, np.array([[1.5]], np.float32), first_row=8192)
    kept.close()
    first, second = entries(folder)
    assert before <= first.pop("time") <= time.time()
    assert first == {
        "id": "order 7",
        "version": 3,
        "rows": [0, 1],
        "columns": {"size": [0.0, 1.0], "who": ["text 0", "text 1"]},
        "labels": LABELS,
        "outputs": [[0.25, 0.75]] * 2,
    }
    assert len(second["id"]) == 32
    assert (second["labels"], second["outputs"], second["rows"]) == (None, [[1.5]], [8192])
    assert (kept.written, kept.dropped) == (3, 0)
    assert [file.suffix for file in folder.iterdir()] == [".jsonl"]


def test_sensitive_columns_and_own_requests_are_left_out(folder):
    kept = RequestLog(folder, 1.0, ["who"])
    kept.add("dmls.own", 1, table(5), LABELS, outputs(5))
    kept.add("", 1, table(5), LABELS, outputs(5))
    kept.close()
    (entry,) = entries(folder)
    assert list(entry["columns"]) == ["size"]
    assert "text" not in "".join(file.read_text() for file in folder.iterdir())


def test_a_share_of_the_rows_is_sampled(folder):
    kept = RequestLog(folder, 0.3, [])
    for number in range(200):
        kept.add("", 1, table(50, first=50 * number), LABELS, outputs(50))
        if number % 50 == 49:  # within what may wait
            while kept._waiting:
                time.sleep(0.01)
    kept.close()
    assert abs(kept.written - 3_000) < 6 * (10_000 * 0.3 * 0.7) ** 0.5
    for entry in entries(folder):
        first = round(entry["columns"]["size"][0]) - entry["rows"][0]
        assert entry["columns"]["size"] == [first + row for row in entry["rows"]]


def test_a_share_of_zero_logs_nothing(folder):
    kept = RequestLog(folder, 0.0, [])
    kept.add("", 1, table(100), LABELS, outputs(100))
    kept.close()
    assert not folder.exists()


def test_a_large_request_is_cut_and_its_memory_is_its_own(folder):
    kept = RequestLog(folder, 1.0, [])
    rows = table(8_192)
    kept.add("", 1, rows, LABELS, outputs(8_192))
    rows["size"][:] = -1  # as the server does with memory that it uses again
    kept.close()
    (entry,) = entries(folder)
    assert len(entry["rows"]) == log.REQUEST_ROWS
    assert entry["columns"]["size"] == entry["rows"] == sorted(entry["rows"])


def test_long_texts_are_cut(folder):
    kept = RequestLog(folder, 1.0, [])
    text = np.array([b"x" * 100_000], dtype=object)
    kept.add("", 1, {"who": text}, LABELS, outputs(1))
    kept.close()
    assert entries(folder)[0]["columns"]["who"] == ["x" * log.TEXT]


def test_rows_beyond_a_slow_disk_are_discarded_and_counted(folder, monkeypatch):
    written, slow = log._line, threading.Event()

    def line(entry):
        slow.wait(60)
        return written(entry)

    monkeypatch.setattr(log, "_line", line)
    kept = RequestLog(folder, 1.0, [])
    for _ in range(200):
        kept.add("", 1, table(100), LABELS, outputs(100))
    assert kept._rows <= log.WAITING_ROWS
    # Beside those that wait there is the one request that is being written.
    assert kept.dropped >= 20_000 - log.WAITING_ROWS - 100
    slow.set()
    kept.close()
    assert kept.written + kept.dropped == 20_000


def test_an_unwritable_folder_discards_rows_and_fails_nothing(folder):
    folder.write_text("a file stands in the way")
    kept = RequestLog(folder, 1.0, [])
    kept.add("", 1, table(2), LABELS, outputs(2))
    while not kept.dropped:
        time.sleep(0.01)
    folder.unlink()
    kept.add("", 1, table(3), LABELS, outputs(3))
    kept.close()
    assert (kept.dropped, kept.written) == (2, 3)


def test_files_end_at_their_size_and_the_oldest_are_removed(folder, monkeypatch):
    monkeypatch.setattr(log, "FILE_BYTES", 4_000)
    monkeypatch.setattr(log, "FOLDER_BYTES", 20_000)
    kept = RequestLog(folder, 1.0, [])
    for number in range(300):
        kept.add("", 1, table(10, first=10 * number), LABELS, outputs(10))
    kept.close()
    sizes = [file.stat().st_size for file in folder.iterdir()]
    assert sum(sizes) <= 20_000
    assert all(size < 5_500 for size in sizes)
    assert kept.dropped + sum(len(entry["rows"]) for entry in entries(folder)) == 3_000


def test_a_file_ends_at_its_age(folder, monkeypatch):
    monkeypatch.setattr(log, "FILE_SECONDS", 0.05)
    kept = RequestLog(folder, 1.0, [])
    kept.add("", 1, table(2), LABELS, outputs(2))
    while not kept.written:
        time.sleep(0.01)
    assert len(entries(folder)) == 1
    kept.close()
