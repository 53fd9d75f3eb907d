"""Triton behind TLS, as docs/how-to/deploy.md shows it: both protocols, and the certificate is checked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.services.nginx_server import nginx

PAGE = Path(__file__).parents[2] / "docs/how-to/deploy.md"

ASK = """
import json, sys
from dmls_core.airflow.operations.service_health import _probe_triton
from dmls_core.errors import DmlsError
from dmls_core.serving import triton_servers
from dmls_core.store import open_store
from dmls_core.web.services.job_sources import served_versions

http, grpc, key, store = sys.argv[1:]
try:
    with triton_servers(http, grpc, key=key) as (client,):
        found = {"live": client.live()}
        found["unknown"] = client.versions("lab.unknown")
    found |= {"index": served_versions(http, key), "health": _probe_triton(http, open_store(store))}
except DmlsError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "triton.pem", folder / "triton.key"
    files[0].write_bytes(made.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


@pytest.fixture(scope="module")
def proxy(triton, certificate, tmp_path_factory):
    """The addresses of a Triton server behind the documented proxy."""
    (config,) = re.findall(r"```nginx\n(events[^`]*8443 ssl[^`]*)```", PAGE.read_text())
    config = config.replace("/etc/ssl/triton.pem", str(certificate[0]))
    config = config.replace("/etc/ssl/private/triton.key", str(certificate[1]))
    with triton.client() as client:
        addresses = {"127.0.0.1:8000": client.addresses["http"], "127.0.0.1:8001": client.addresses["grpc"]}
    with nginx(config, addresses, tmp_path_factory.mktemp("nginx")) as ports:
        http, grpc = (ports[port].replace("127.0.0.1", "localhost") for port in (8443, 8444))
        yield f"https://{http}", f"grpcs://{grpc}"


def ask(proxy, key: str, store: Path, authority: Path | None) -> dict:
    """Ask Triton in a process of its own, since clients read the authorities once."""
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    if authority:
        environment["SSL_CERT_FILE"] = str(authority)
    done = subprocess.run(
        [sys.executable, "-c", ASK, *proxy, key, str(store)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_both_protocols_and_the_health_probe_go_through_tls(proxy, triton, certificate, tmp_path):
    found = ask(proxy, triton.context.secret("triton_key"), tmp_path, certificate[0])
    assert (found["live"], found["unknown"]) == (True, [])
    assert isinstance(found["index"], dict)
    assert found["health"].startswith("triton ")


def test_a_certificate_of_an_unknown_authority_is_refused(proxy, triton, tmp_path):
    found = ask(proxy, triton.context.secret("triton_key"), tmp_path, None)
    assert found["live"] is False
    assert f"Triton does not answer at {proxy[1]}" in found["error"]
