"""A boto3 client with bounded patience."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, cast

import boto3
import botocore.session
from botocore.config import Config
from botocore.utils import parse_timestamp

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def make_client() -> S3Client:
    """Return a client from the standard AWS environment, with bounded retries and timeouts."""
    # A server of one's own rarely has a DNS name for each bucket.
    own_server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 4},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=32,
        # Many S3-compatible servers refuse the trailing checksums that are the default.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if own_server else "auto"},
    )
    # A session of its own: the default session is not safe to share between threads.
    core = botocore.session.get_session()
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_moment)
    session = boto3.session.Session(botocore_session=core)
    return session.client("s3", region_name=session.region_name or "us-east-1", config=config)


def parse_moment(text: str | float) -> datetime:
    """Read a timestamp; the ISO form of listings much faster than botocore, which spends its time there."""
    if isinstance(text, str) and text.endswith("Z"):
        return datetime.fromisoformat(text)
    moment: datetime = parse_timestamp(cast("str", text))
    return moment
