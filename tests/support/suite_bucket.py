"""An S3 service for runners whose trainers do not see the worker's folders."""

from __future__ import annotations

import json
from collections.abc import Iterator

import boto3
from moto.server import ThreadedMotoServer


def serve_suite_bucket() -> Iterator[str]:
    """Yield the URL of a service with the bucket ``suite``, which asks no one for credentials."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "key", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="suite")
    yield url
    server.stop()


def suite_connection(url: str) -> str:
    """Return the value of ``AIRFLOW_CONN_AWS_DEFAULT`` for the service."""
    connection = {"conn_type": "aws", "login": "key", "password": "key", "extra": {"endpoint_url": url}}
    return json.dumps(connection)
