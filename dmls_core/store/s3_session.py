"""Credentials for one trainer: a role's session, limited by a policy to the prefixes of one run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3

from dmls_core.store.base import Access
from dmls_core.store.s3_client import REGION, environment, translated

if TYPE_CHECKING:
    from collections.abc import Iterable

_SESSION_SECONDS = (12 * 3600, 3600)
"""Durations to request: the longest there is, then the default of a role, which a role may not exceed."""

_READ = ["s3:GetObject"]
_WRITE = [
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:AbortMultipartUpload",
]
_LIST = ["s3:ListBucket", "s3:ListBucketVersions"]


def session_environment(hook: Any, role: str, policy: str, name: str) -> dict[str, str]:
    """Return the variables of ``environment`` with credentials of a new session of ``role``.

    ``name`` identifies the session in the service's logs.

    Raises:
        StoreError: the service does not give them.
    """
    with translated(f"get credentials of the role {role}"):
        client = _sts_client(hook)
        arguments = {"RoleArn": role, "RoleSessionName": name[:64], "Policy": policy}
        longest, default = _SESSION_SECONDS
        try:
            answer = client.assume_role(**arguments, DurationSeconds=longest)
        except client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "ValidationError":
                raise
            answer = client.assume_role(**arguments, DurationSeconds=default)
    credentials = answer["Credentials"]
    others = {k: v for k, v in environment(hook).items() if k not in ("AWS_PROFILE", "AWS_ROLE_ARN")}
    return others | {
        "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
        "AWS_SESSION_TOKEN": credentials["SessionToken"],
    }


def session_policy(bucket: str, prefix: str, access: Access) -> str:
    """Return the policy, JSON, that allows ``access`` below ``prefix``: empty, or with a slash at its end."""
    arn = f"arn:aws:s3:::{bucket}"

    def objects(prefixes: Iterable[str]) -> list[str]:
        return [f"{arn}/{prefix}{key}{'*' if key.endswith('/') else ''}" for key in prefixes]

    listed = [f"{prefix}{key}*" for key in access.write]
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": _READ, "Resource": objects(access.read)},
            {"Effect": "Allow", "Action": _WRITE, "Resource": objects(access.write)},
            {
                "Effect": "Allow",
                "Action": _LIST,
                "Resource": [arn],
                "Condition": {"StringLike": {"s3:prefix": listed}},
            },
        ],
    }
    return json.dumps(policy, separators=(",", ":"))  # AWS takes 2,048 characters


def _sts_client(hook: Any) -> Any:
    if hook is None:
        session = boto3.session.Session()
        return session.client("sts", region_name=session.region_name or REGION)
    return hook.get_session().client(
        "sts",
        region_name=hook.region_name or REGION,
        endpoint_url=hook.conn_config.get_service_endpoint_url("sts"),
    )
