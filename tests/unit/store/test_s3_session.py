"""Credentials for one trainer: the session that is requested, and reads that such credentials may not do."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws

from dmls_core.errors import PlatformError, StoreError
from dmls_core.store import Access, layout, open_store, run_key, s3_session
from dmls_core.store.s3 import S3Store

ROLE = "arn:aws:iam::123456789012:role/trainer"
ACCESS = Access(read=("registry/specs/1.json", "incoming/shop/sales/"), write=("runs/shop/sales/k/",))


class Hook:
    """What a session takes of Airflow's ``S3Hook``."""

    region_name = "eu-central-1"
    conn_config = SimpleNamespace(endpoint_url=None, get_service_endpoint_url={}.get)

    def get_session(self) -> boto3.session.Session:
        return boto3.session.Session("key", "secret")

    def get_credentials(self) -> SimpleNamespace:
        return SimpleNamespace(access_key="key", secret_key="secret", token=None)


@pytest.mark.parametrize("hook", [Hook(), None], ids=["connection", "environment"])
@mock_aws
def test_sts_gives_a_trainer_credentials_of_its_own(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/platform")
    found = open_store("s3://bucket/root", hook=hook).limited_environment(ROLE, ACCESS, "dmls-1")
    assert found["AWS_ACCESS_KEY_ID"] not in ("", "key")
    assert found["AWS_SECRET_ACCESS_KEY"] != "secret"
    assert found["AWS_SESSION_TOKEN"]
    assert "AWS_ROLE_ARN" not in found
    assert found.get("AWS_DEFAULT_REGION", "eu-central-1") == "eu-central-1"


def test_a_policy_names_the_run_and_nothing_of_other_jobs() -> None:
    allowed = json.loads(s3_session.session_policy("bucket", "root/", ACCESS))["Statement"]
    at = "arn:aws:s3:::bucket/root"
    assert allowed[0]["Resource"] == [f"{at}/registry/specs/1.json", f"{at}/incoming/shop/sales/*"]
    assert allowed[1]["Resource"] == [f"{at}/runs/shop/sales/k/*"]
    assert allowed[2]["Condition"] == {"StringLike": {"s3:prefix": ["root/runs/shop/sales/k/*"]}}


def test_the_longest_names_fit_into_the_policy_that_aws_accepts() -> None:
    team = job = "x" * 63
    key = run_key("s" * 64, ())
    folders = (
        layout.incoming_folder(team, job),
        layout.source_folder(team, job),
        layout.runs_folder(team, job),
    )
    access = Access((layout.spec("s" * 64), *folders), (layout.run_folder(team, job, key),))
    policy = s3_session.session_policy("b" * 63, "p" * 64 + "/", access)
    assert len(policy) <= 2048


@pytest.mark.parametrize(("code", "asked"), [("ValidationError", [43200, 3600]), ("AccessDenied", [43200])])
def test_a_role_with_short_sessions_gives_its_own(
    code: str, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = []

    def assume_role(**arguments: Any) -> dict[str, Any]:
        seconds.append(arguments["DurationSeconds"])
        if arguments["DurationSeconds"] > 3600:
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "AssumeRole")
        keys = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        return {"Credentials": dict.fromkeys(keys, "short")}

    client = SimpleNamespace(assume_role=assume_role, exceptions=SimpleNamespace(ClientError=ClientError))
    monkeypatch.setattr(s3_session, "_sts_client", lambda _: client)
    store = open_store("s3://bucket/root")
    if code == "AccessDenied":
        with pytest.raises(StoreError, match=f"cannot get credentials of the role {ROLE}: access denied"):
            store.limited_environment(ROLE, ACCESS, "dmls-1")
    else:
        assert store.limited_environment(ROLE, ACCESS, "dmls-1")["AWS_SESSION_TOKEN"] == "short"
    assert seconds == asked


def test_other_stores_say_that_they_have_no_such_credentials(tmp_path: Any) -> None:
    with pytest.raises(PlatformError, match="has no credentials for single trainers"):
        open_store(str(tmp_path)).limited_environment(ROLE, ACCESS, "dmls-1")


@pytest.mark.parametrize("listed", ["nothing", "a longer key", "the key", "denied"])
def test_what_may_not_be_read_is_missing_only_if_a_list_says_so(listed: str) -> None:
    client = boto3.client(
        "s3", region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )
    keys = {"nothing": [], "a longer key": ["runs/a.json.old"], "the key": ["runs/a.json"]}
    with Stubber(client) as stub:
        stub.add_client_error("head_object", "403", http_status_code=403)
        if listed == "denied":
            stub.add_client_error("list_objects_v2", "AccessDenied", http_status_code=403)
        else:
            found = [{"Key": key, "Size": 1, "ETag": "e", "LastModified": 0} for key in keys[listed]]
            stub.add_response("list_objects_v2", {"Contents": found})
        store = S3Store("bucket", client=client)
        if listed in ("nothing", "a longer key"):
            assert store.head("runs/a.json") is None
        else:
            with pytest.raises(StoreError, match="access denied"):
                store.head("runs/a.json")
