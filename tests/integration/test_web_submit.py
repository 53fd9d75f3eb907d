"""The REST API of submissions on a real S3 server; Airflow's access checks are replaced."""

from __future__ import annotations

import base64
import gzip
import io
import json
import math
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dmls_core.airflow import auth
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.intake import admit
from dmls_core.store import Store
from dmls_core.store.s3 import S3Store
from dmls_core.web import dependencies
from dmls_core.web.error_handlers import add_handlers
from dmls_core.web.routers import submissions as router
from dmls_core.web.services import estimates, stored_schema, submissions
from tests.e2e.data import iris
from tests.services.seaweed import S3Server
from tests.unit.data.formats.test_excel import workbook

IRIS = iris().encode()
BINARY = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.bucket()


@pytest.fixture
def store(s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = S3Store(bucket, uuid.uuid4().hex, s3_server.client())
    monkeypatch.setattr(estimates, "open_store", lambda: store)
    monkeypatch.setattr(estimates, "airflow_settings", lambda: AirflowSettings(root="s3://dmls"))
    for name in ("open_store", "open_store_for_uploads"):
        monkeypatch.setattr(submissions, name, lambda: store)
    monkeypatch.setattr(stored_schema, "open_store", lambda: store)
    return store


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    def authorized(user: object, method: str, dag_id: str, entity: object = None) -> bool:
        _, team, name = dag_id.split(".")
        return team != "forbidden" and name != "secret" and (method, name) != ("PUT", "fixed")

    monkeypatch.setattr(auth, "is_authorized", authorized)
    monkeypatch.setattr(submissions, "is_authorized", authorized)
    app = FastAPI()
    app.include_router(router.router, prefix="/api")
    user = SimpleAuthManagerUser(username="ada", role="admin")
    app.dependency_overrides[dependencies.signed_in] = lambda: user
    app.dependency_overrides[dependencies.check_site_access] = lambda: None
    add_handlers(app)
    with TestClient(app, root_path="/dmls", base_url="http://test/dmls/api") as client:
        yield client


def infer(api: TestClient, file: str, content: bytes, size: int | None = None) -> Any:
    query = {"file": file, "size": len(content) if size is None else size}
    return api.post("/sniff", params=query, content=content, headers=BINARY)


def upload(api: TestClient, job: str, file: str, content: bytes, part: int | None = None) -> None:
    query: dict[str, Any] = {"file": file, "size": len(content)}
    begun = api.post(f"/drops/{job}/uploads", params=query)
    assert begun.status_code == 201, begun.text
    at = f"/drops/{job}/uploads/{begun.json()['upload']}"
    size = part or begun.json()["part_bytes"]
    for number in range(math.ceil(len(content) / size)):
        chunk = content[number * size : (number + 1) * size]
        done = api.put(f"{at}/{number + 1}", params=query, content=chunk, headers=BINARY)
        assert done.status_code == 204, done.text
    assert api.post(f"{at}/finish", params=query).status_code == 204


def test_a_submission_from_the_page_is_admitted(api: TestClient, store: Store):
    found = infer(api, "iris.csv", IRIS[:3000], len(IRIS)).json()
    assert (found["target"], found["task"], found["rows"]) == ("species", "classification", None)
    upload(api, "lab/iris", "iris.csv", IRIS)
    before = api.get("/drops/lab/iris").json()
    assert (before["files"], before["has_spec"], before["version"]) == (["iris.csv"], False, 0)

    sent = api.put("/drops/lab/iris/spec", json={"toml": found["toml"]}).json()

    assert admit(store, "lab", "iris").state == "accepted"
    after = api.get("/drops/lab/iris", params={"fingerprint": sent["fingerprint"]}).json()
    assert after["answered"]
    assert (after["version"], after["status"]["state"]) == (1, "accepted")
    assert store.get("incoming/lab/iris/iris.csv") == IRIS
    assert not api.get("/drops/lab/iris", params={"fingerprint": "another"}).json()["answered"]


def test_a_run_is_estimated_from_the_beginning_of_its_data(api: TestClient, store: Store):
    toml = infer(api, "iris.csv", IRIS).json()["toml"]
    body = {"toml": toml, "file": "iris.csv", "size": 100 * len(IRIS)}
    sample = {"sample": base64.b64encode(IRIS).decode()}
    store.put("incoming/lab/iris/iris.csv", IRIS)

    part = api.post("/drops/lab/planned/estimate", json=body | sample).json()
    stored = api.post("/drops/lab/iris/estimate", json=body).json()
    packed = base64.b64encode(gzip.compress(IRIS)).decode()
    small = api.post(
        "/drops/lab/planned/estimate", json={"toml": toml, "file": "iris.csv.gz", "sample": packed}
    ).json()
    nameless = api.post("/drops/lab/planned/estimate", json=body | sample | {"file": "iris"})
    assert nameless.status_code == 422
    whole_only = [
        api.post("/drops/lab/planned/estimate", json=body | sample | {"file": file})
        for file in ("iris.parquet", "iris.csv.gz", "iris.xlsx")
    ]

    assert (stored["rows"], stored["sampled"]) == (150, False)
    assert (part["rows"], part["sampled"]) == (15_000, True)
    assert part["seconds"] > 0
    assert stored["memory_bytes"] > 1 << 20
    assert small["rows"] == 150
    assert [answer.status_code for answer in whole_only] == [422] * 3
    assert all("from a part of it" in answer.text for answer in whole_only)


def test_a_run_on_a_large_file_in_s3_is_estimated_from_rows_all_over_it(
    api: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dmls_core.intake.schema_inference.WHOLE", 1 << 20)
    rows = 150_000
    noise = random.Random(1)
    lines = [f"{noise.random()},{row},{'first' if row < rows / 2 else 'second'}" for row in range(rows)]
    text = "\n".join(["noise,row,half", *lines]).encode()
    parquet = io.BytesIO()
    pl.read_csv(text).write_parquet(parquet, row_group_size=rows)
    files = {"a.csv": text, "a.csv.gz": gzip.compress(text, 1), "a.parquet": parquet.getvalue()}
    toml = 'model = "random-forest-classifier"\n[columns]\ntarget = "half"\n'

    for file, content in files.items():
        assert len(content) > 1 << 20
        store.put(f"incoming/lab/large/{file}", content)
        found = api.post("/drops/lab/large/estimate", json={"toml": toml, "file": file}).json()
        schema = api.get("/drops/lab/large/sniff", params={"file": file}).json()
        assert found.get("sampled"), (file, found)
        assert found["rows"] == pytest.approx(rows, rel=0.1)
        assert (schema["spread"], schema["seen"]) == (True, pytest.approx(2_000, abs=20))


def test_more_of_a_text_than_a_schema_needs_is_refused(api: TestClient):
    refused = infer(api, "a.csv", b"a,b\n" + b"1,2\n" * (submissions.MAX_SENT // 4))

    assert refused.status_code == 422
    assert "before its upload" in refused.text


def test_a_large_file_is_uploaded_in_parts(api: TestClient, store: Store):
    part = 5 << 20  # the smallest that S3 takes, except for the last one
    content = b"a,b\n" + b"1,2\n" * (part // 2)

    upload(api, "lab/large", "large.csv", content, part=part)

    assert store.get("incoming/lab/large/large.csv") == content


def test_a_cancelled_upload_leaves_nothing(api: TestClient, store: Store):
    query: dict[str, Any] = {"file": "a.csv", "size": 4}
    at = f"/drops/lab/gone/uploads/{api.post('/drops/lab/gone/uploads', params=query).json()['upload']}"
    api.put(f"{at}/1", params=query, content=b"a,b\n", headers=BINARY)

    assert api.delete(at, params=query).status_code == 204
    finished = api.post(f"{at}/finish", params=query)

    assert finished.status_code == 409
    assert "send the file again" in finished.json()["detail"]
    assert store.head("incoming/lab/gone/a.csv") is None


@pytest.mark.parametrize(
    "file", ["_status.csv", ".hidden.csv", "a/b.csv", "a\\b.csv", "spec.toml", "a\nb.csv"]
)
def test_an_invalid_file_name_is_refused(api: TestClient, store: Store, file: str):
    refused = api.post("/drops/lab/odd/uploads", params={"file": file, "size": 1})

    assert refused.status_code == 422
    assert list(store.list("incoming/lab/odd/")) == []


@pytest.mark.parametrize("job", ["forbidden/a", "lab/secret"])
def test_submitting_requires_access_to_runs(api: TestClient, store: Store, job: str):
    answers = [
        api.get(f"/drops/{job}"),
        api.get(f"/drops/{job}/sniff", params={"file": "a.csv"}),
        api.post(f"/drops/{job}/uploads", params={"file": "a.csv", "size": 1}),
        api.put(f"/drops/{job}/uploads/x/1", params={"file": "a.csv"}, content=b"a", headers=BINARY),
        api.post(f"/drops/{job}/uploads/x/finish", params={"file": "a.csv", "size": 1}),
        api.delete(f"/drops/{job}/uploads/x", params={"file": "a.csv"}),
        api.put(f"/drops/{job}/spec", json={"toml": ""}),
    ]

    assert [answer.status_code for answer in answers] == [403] * len(answers)
    assert list(store.list("incoming/")) == []


def test_submitting_to_an_existing_job_requires_the_right_to_change_it(api: TestClient, store: Store):
    toml = infer(api, "iris.csv", IRIS).json()["toml"]
    upload(api, "lab/fixed", "iris.csv", IRIS)
    assert api.put("/drops/lab/fixed/spec", json={"toml": toml}).status_code == 200
    assert admit(store, "lab", "fixed").state == "accepted"

    answers = [
        api.post("/drops/lab/fixed/uploads", params={"file": "iris.csv", "size": 1}),
        api.post("/drops/lab/fixed/uploads/x/finish", params={"file": "iris.csv", "size": 1}),
        api.put("/drops/lab/fixed/spec", json={"toml": toml + "# another\n"}),
    ]

    assert [answer.status_code for answer in answers] == [403] * 3
    assert store.get("incoming/lab/fixed/spec.toml").decode() == toml


def test_data_files_in_s3_are_listed_and_their_schema_is_inferred(api: TestClient, store: Store):
    store.put("incoming/lab/iris/iris.csv", IRIS)
    store.put("incoming/lab/secret/iris.csv", IRIS)
    store.put("incoming/lab/iris/_status.json", b"{}")

    (found,) = api.get("/drops/lab").json()["files"]
    assert (found["name"], found["file"], found["size"]) == ("iris", "iris.csv", len(IRIS))
    assert api.get("/drops/lab/iris/sniff", params={"file": "iris.csv"}).json()["rows"] == 150
    assert api.get("/drops/lab/iris/sniff", params={"file": "none.csv"}).status_code == 404


@pytest.mark.parametrize("file", ["a.parquet", "a.csv.gz", "a.xlsx"])
def test_a_part_of_a_file_that_is_not_text_is_refused_with_a_hint(api: TestClient, file: str):
    refused = infer(api, file, bytes(1000), 9 << 20)

    assert refused.status_code == 422
    (problem,) = refused.json()["problems"]
    assert problem["message"] == "only text is read before its upload"
    assert "upload it" in problem["hint"]


def test_the_schema_of_a_very_large_parquet_file_comes_from_its_end(
    api: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
):
    content = io.BytesIO()
    pl.DataFrame({"a": range(5000), "y": [0.5, 1.5] * 2500}).write_parquet(content)
    store.put("incoming/lab/large/a.parquet", content.getvalue())
    monkeypatch.setattr(stored_schema, "COPIED", 1000)

    found = api.get("/drops/lab/large/sniff", params={"file": "a.parquet"}).json()

    assert (found["rows"], found["seen"], found["target"]) == (5000, 0, "y")


def test_how_a_file_is_written_is_detected_and_can_be_corrected(api: TestClient, tmp_path: Path):
    rows = [["a", "y"], *([n + 0.5, "uv"[n % 2]] for n in range(30))]
    content = workbook(
        tmp_path / "d.xlsx", {"Old": [["b", "y"], [1, "u"], [2, "v"]], "Data": rows}
    ).read_bytes()
    found = infer(api, "d.xlsx", content).json()
    assert (found["data"], found["sheets"]) == ({"sheet": "Old"}, ["Old", "Data"])

    def read(**data: Any) -> Any:
        query = {"file": "d.xlsx", "size": len(content), "data": json.dumps(data)}
        return api.post("/sniff", params=query, content=content, headers=BINARY)

    found = read(sheet="Data", skip_rows=1, header=False).json()
    assert ([column["name"] for column in found["columns"]], found["rows"]) == (["column_1", "column_2"], 30)
    assert found["document"]["data"] == {"sheet": "Data", "skip_rows": 1, "header": False}
    refused = read(sheet="Nope")
    assert refused.status_code == 422
    assert refused.json()["problems"][0]["expected"] == "'Old', 'Data'"
    assert read(delimiter=7).json()["problems"][0]["key"] == "data.delimiter"


def test_a_file_that_is_not_a_table_is_refused_with_a_hint(api: TestClient):
    refused = infer(api, "a.csv", b"PK\x03\x04" + bytes(50))

    assert refused.status_code == 422
    assert refused.json()["problems"][0]["hint"] == "give it a name that ends in .zip or .xlsx"


def test_a_document_survives_the_way_to_toml_and_back(api: TestClient):
    document = infer(api, "iris.csv", IRIS).json()["document"]
    assert document["model"] == "auto-classifier"
    document |= {
        "model": "random-forest-classifier",
        "max_features": {"values": ["sqrt", 0.5, {"float": 1.0}]},
    }

    written = api.post("/specs/toml", json={"document": document}).json()
    read = api.post("/specs/check", json={"toml": written["toml"]}).json()

    assert written["valid"]
    assert 'values = ["sqrt", 0.5, 1.0]' in written["toml"]
    assert read["document"] == document == written["document"]
    assert read["gist"]["metric"] == "accuracy"


def test_problems_have_a_line_a_column_and_a_hint(api: TestClient):
    toml = 'model = "random-forest-classifier"\n\n[columns]\ntarget = "specis"\n\n[n_estimatos]\nvalue = 3\n'

    found = api.post("/specs/check", json={"toml": toml, "columns": ["a", "species"]}).json()
    (problem,) = found["problems"]
    assert (problem["line"], problem["column"], problem["hint"]) == (6, 2, "did you mean n_estimators?")

    toml = toml.replace("estimatos", "estimators")
    found = api.post("/specs/check", json={"toml": toml, "columns": ["a", "species"]}).json()
    (problem,) = found["problems"]
    assert (problem["key"], problem["hint"]) == ("columns.target", "did you mean 'species'?")


@pytest.mark.parametrize("toml", ["[", "model = nan", "a = " + "[" * 5000, "model = 1979-05-27", "\ud800"])
def test_invalid_toml_is_reported_as_problems(api: TestClient, toml: str):
    body = '{"toml": ' + json.dumps(toml) + "}"
    answer = api.post("/specs/check", content=body, headers={"Content-Type": "application/json"})

    found = answer.json()
    assert answer.status_code in (200, 422)
    assert found["problems"]
    assert not found.get("valid")


def test_the_catalogue_contains_models_of_both_tasks(api: TestClient):
    models = api.get("/catalogue").json()["models"]

    assert {model["task"] for model in models} == {"classification", "regression"}
