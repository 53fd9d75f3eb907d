"""SeaweedFS: the S3 server."""

from __future__ import annotations

from dmls_core.devstack.context import BUCKET, Context
from dmls_core.devstack.private_files import make_private_folder, write_private_json
from dmls_core.devstack.programs import find_program
from dmls_core.devstack.supervisor import Service, http_answers
from dmls_core.errors import PlatformError

PORTS = ("s3", "s3_grpc", "master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc")

VOLUME_MEGABYTES = 1024


def seaweedfs_service(context: Context) -> Service:
    """Return the service, and write its credentials to the file that it reads.

    Without credentials SeaweedFS treats every client as administrator, so S3 has an identity; the HTTP side
    of master and filer, which check none, is off; and the volumes' port, which S3 itself uses, needs signed
    tokens.
    """
    folder = make_private_folder(context.state / "s3")
    data = make_private_folder(folder / "data")
    identities = folder / "identities.json"
    key = {"accessKey": context.secret("s3_access_key"), "secretKey": context.secret("s3_secret_key")}
    write_private_json(
        identities, {"identities": [{"name": "dmls", "credentials": [key], "actions": ["Admin"]}]}
    )
    options = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "disableHttp": "true",
        "filer": "true",
        "filer.disableHttp": "true",
        "s3": "true",
        "s3.config": identities,
        "s3.iam": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": context.runtime / "s3.sock",
        "filer.localSocket": context.runtime / "filer.sock",
        "master.telemetry": "false",
        "master.electionTimeout": "1s",
        "master.volumeSizeLimitMB": VOLUME_MEGABYTES,
        "volume.max": 0,
        "volume.preStopSeconds": 1,
    }
    for name in PORTS:
        server, _, kind = name.partition("_")
        options[f"{server}.port{'.grpc' if kind else ''}"] = context.port(name)
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
