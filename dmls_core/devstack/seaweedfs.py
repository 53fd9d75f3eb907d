"""SeaweedFS: the S3 server."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dmls_core.devstack.context import BUCKET, Context
from dmls_core.devstack.private_files import make_private_folder, write_private, write_private_json
from dmls_core.devstack.programs import find_program
from dmls_core.devstack.supervisor import Service, http_answers
from dmls_core.errors import PlatformError

PORTS = ("s3", "s3_grpc", "master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc")

_VOLUME_MEGABYTES = 1024

CERTIFICATE, KEY = "certificate.pem", "certificate.key"
_VALIDITY = timedelta(days=3650)
_RENEWAL = timedelta(days=365)
"""Age at which a start replaces the certificate."""


_ACCOUNT = "arn:aws:iam::000000000000"
_IDENTITY = "dmls"
TRAINER_ROLE = f"{_ACCOUNT}:role/trainer"
"""Role whose sessions trainers get; the policy of a session limits it to one run."""


def seaweedfs_service(context: Context) -> Service:
    """Return the service, and write its credentials to the file that it reads.

    Without credentials SeaweedFS treats every client as administrator, so S3 has an identity; the HTTP side
    of master and filer, which check none, is off; the volumes' port, which S3 itself uses, needs signed
    tokens; and gRPC, by which its parts talk to each other, needs their certificate.
    """
    folder = make_private_folder(context.state / "s3")
    _require_certificate(folder)
    data = make_private_folder(folder / "data")
    identities = folder / "identities.json"
    key = {"accessKey": context.secret("s3_access_key"), "secretKey": context.secret("s3_secret_key")}
    write_private_json(
        identities, {"identities": [{"name": _IDENTITY, "credentials": [key], "actions": ["Admin"]}]}
    )
    sessions = folder / "sessions.json"
    write_private_json(sessions, session_config(context.secret("s3_internal_key")))
    options = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "disableHttp": "true",
        "filer": "true",
        "filer.disableHttp": "true",
        "s3": "true",
        "s3.config": identities,
        "s3.iam": "true",  # without it, STS does not know the identity
        "s3.iam.readOnly": "true",
        "s3.iam.config": sessions,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": context.runtime / "s3.sock",
        "filer.localSocket": context.runtime / "filer.sock",
        "master.telemetry": "false",
        "master.electionTimeout": "1s",
        "master.volumeSizeLimitMB": _VOLUME_MEGABYTES,
        "volume.max": 0,
        "volume.preStopSeconds": 1,
    }
    for name in PORTS:
        server, _, protocol = name.partition("_")
        options[f"{server}.port{'.grpc' if protocol else ''}"] = context.port(name)
    signing = context.secret("s3_internal_key")
    return Service(
        name="s3",
        command=[find_program("weed"), "-logtostderr", "server", *(f"-{k}={v}" for k, v in options.items())],
        folder=folder,
        environment={
            "WEED_JWT_SIGNING_KEY": signing,
            "WEED_JWT_SIGNING_READ_KEY": signing,
            "WEED_JWT_FILER_SIGNING_KEY": signing,
            "WEED_JWT_FILER_SIGNING_READ_KEY": signing,
        },
        ready=lambda _: http_answers(f"{context.url('s3')}/healthz"),
        url=context.url("s3"),
        stale=tuple(
            f"/tmp/seaweedfs-{server}-grpc-{context.port(f'{server}_grpc')}.sock"  # noqa: S108 - SeaweedFS's own
            for server in ("s3", "master", "volume", "filer")
        ),
    )


def guard_service(context: Context) -> Service:
    """Return what restarts S3 if it refuses writes after its full disk has room again."""
    folder = context.state / "s3"
    return Service(
        name="s3-guard",
        command=[
            sys.executable,
            "-P",
            "-m",
            "dmls_core.devstack.store_guard",
            context.root,
            str(folder / "data"),
        ],
        folder=folder,
        environment=context.s3_environment(),
        ready=lambda _: True,
    )


def session_config(secret: str) -> dict[str, Any]:
    """Return the configuration of STS: the identity, and no session, may assume the trainer's role."""
    signing_key = hashlib.sha256(f"sessions {secret}".encode()).digest()
    allowed = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
    trusted = {
        "Effect": "Allow",
        "Principal": {"AWS": f"{_ACCOUNT}:user/{_IDENTITY}"},
        "Action": ["sts:AssumeRole"],
    }
    version = "2012-10-17"
    return {
        "sts": {
            "tokenDuration": "1h",
            "maxSessionLength": "12h",
            "issuer": "dmls",
            "signingKey": base64.b64encode(signing_key).decode(),
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "trainer", "document": {"Version": version, "Statement": [allowed]}}],
        "roles": [
            {
                "roleName": "trainer",
                "roleArn": TRAINER_ROLE,
                "trustPolicy": {"Version": version, "Statement": [trusted]},
                "attachedPolicies": ["trainer"],
            }
        ],
    }


def _require_certificate(folder: Path) -> None:
    """Have each part present the same certificate and accept no other; SeaweedFS checks no host names."""
    certificate, key = folder / CERTIFICATE, folder / KEY
    if not key.exists() or time.time() - key.stat().st_mtime > _RENEWAL.total_seconds():
        _make_certificate(certificate, key)
    # JSON's strings are TOML's.
    public, secret = json.dumps(str(certificate)), json.dumps(str(key))
    lines = ["[grpc]", f"ca = {public}"]
    for part in ("master", "volume", "filer", "s3", "client"):
        lines += [f"[grpc.{part}]", f"cert = {public}", f"key = {secret}"]
    write_private(folder / "security.toml", "\n".join([*lines, ""]))


def _make_certificate(certificate: Path, key: Path) -> None:
    """Write a new key, and a certificate signed with it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dmls")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))  # clocks may be set back
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    write_private(certificate, signed.public_bytes(Encoding.PEM).decode())
    write_private(key, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def make_bucket(context: Context) -> None:
    """Create the bucket, if it is missing; raise ``PlatformError`` if S3 does not."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3",
        endpoint_url=context.url("s3"),
        aws_access_key_id=context.secret("s3_access_key"),
        aws_secret_access_key=context.secret("s3_secret_key"),
        region_name=context.s3_environment()["AWS_DEFAULT_REGION"],
        config=Config(retries={"max_attempts": 8, "mode": "standard"}, connect_timeout=2, read_timeout=10),
    )
    try:
        client.create_bucket(Bucket=BUCKET)
    except client.exceptions.BucketAlreadyOwnedByYou:
        return
    except (BotoCoreError, ClientError) as error:
        raise PlatformError(f"S3 does not create the bucket {BUCKET}: {error}") from error
