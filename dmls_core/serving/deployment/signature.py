"""Sign the files of a model, and tell whether a folder still holds what was signed.

The signature is ``model.sig``, a Sigstore bundle in the format of OpenSSF Model Signing 1.0: an in-toto
statement with the SHA-256 of every file but those in ``UNSIGNED``, signed with ECDSA. Anybody with the public
key can check it with ``model_signing verify key``. MLflow stores this module with every logged model, and
runs it without DMLS.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model_signing import hashing, verifying

SIGNATURE_FILE = "model.sig"
UNSIGNED = (SIGNATURE_FILE, "card.html", "dmls.json")
"""Files that change after the training: the card reports deployments, ``dmls.json`` is made by one.

What ``dmls.json`` says of a version, its number and the files' checksums, the version's signature says too.
"""

_DAMAGED = f"{SIGNATURE_FILE} is damaged or made with another key"

_PUBLIC_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----\n?", re.DOTALL)
_DIFFERENCES = re.compile(r"(Extra|Missing) files [^:]*: ([^\"\\]+)[\"\\]|Hash mismatch for \\?'([^'\\]+)")


def sign(folder: Path, name: str, key: str) -> bytes:
    """Return the content of ``model.sig`` for the files in ``folder``, which the statement calls ``name``.

    ``key`` is a private key for ECDSA on P-256, P-384 or P-521, in PEM; raise ValueError if it is not.
    """
    from model_signing import signing

    with _key_file(key) as path:
        try:
            signer = signing.Config().use_elliptic_key_signer(private_key=path)  # type: ignore[no-untyped-call]
        except (ValueError, TypeError, AttributeError) as error:  # damaged, encrypted, or of another kind
            raise ValueError(
                "it is not a private key for ECDSA on P-256, P-384 or P-521, in PEM without a password"
            ) from error
    # The statement names the folder, and may not be made from a link.
    with tempfile.TemporaryDirectory(prefix=".signing-", dir=folder.parent) as scratch:
        named = shutil.copytree(folder, Path(scratch) / name, copy_function=os.link)
        signature = Path(scratch) / SIGNATURE_FILE
        signer.set_hashing_config(_hashing()).sign(named, signature)
        return signature.read_bytes()


def public_key(key: str) -> str:
    """Return the public key of a private one, both in PEM; raise ValueError if it is none for ECDSA."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    private = load_pem_private_key(key.encode(), None)
    if not isinstance(private, EllipticCurvePrivateKey):
        raise ValueError("it is not a private key for ECDSA")
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def public_keys(text: str) -> list[str]:
    """Return the public keys in ``text``, PEM one after the other; raise ValueError if there is none."""
    keys = _PUBLIC_KEY.findall(text)
    if not keys:
        raise ValueError("it holds no public key in PEM (-----BEGIN PUBLIC KEY-----)")
    for key in keys:
        _verifier(key)
    return keys


def signed_name(signature: bytes) -> str:
    """Return the name in a signature, which is the signer's only if the signature is valid."""
    statement = json.loads(base64.b64decode(json.loads(signature)["dsseEnvelope"]["payload"]))
    return str(statement["subject"][0]["name"])


def problem(folder: Path, keys: list[str]) -> str:
    """Return why ``folder`` does not hold what one of ``keys`` signed, or an empty text.

    The name in the signature is not compared; see ``signed_name``.
    """
    signature, problems = folder / SIGNATURE_FILE, []
    if not signature.is_file():
        return f"{SIGNATURE_FILE} is missing"
    for key in keys:
        try:
            _verifier(key).set_hashing_config(_hashing()).verify(folder, signature)
        except Exception as error:  # noqa: BLE001 - whatever a damaged bundle causes in the library
            problems.append(_describe(error))
            continue
        envelope = json.loads(signature.read_bytes())["dsseEnvelope"]
        texts = envelope["payload"], envelope["signatures"][0]["sig"]
        # The last bits of a base64 text are not decoded.
        intact = all(base64.b64encode(base64.b64decode(text)).decode() == text for text in texts)
        return "" if intact else _DAMAGED
    return next((text for text in problems if text != _DAMAGED), _DAMAGED)


def _verifier(key: str) -> verifying.Config:
    from model_signing import verifying

    with _key_file(key) as path:
        try:
            return verifying.Config().use_elliptic_key_verifier(public_key=path)  # type: ignore[no-untyped-call]
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError("a public key in it is not for ECDSA on P-256, P-384 or P-521") from error


def _describe(error: Exception) -> str:
    """Return what differs, without digests."""
    differences = [
        f"{changed} was changed" if changed else f"{what.lower()} files: {files}"
        for what, files, changed in _DIFFERENCES.findall(str(error))
    ]
    return "; ".join(differences) or _DAMAGED


def _hashing() -> hashing.Config:
    from model_signing import hashing

    config = hashing.Config()  # type: ignore[no-untyped-call]
    return config.set_ignored_paths(paths=UNSIGNED, ignore_git_paths=False)


@contextmanager
def _key_file(key: str) -> Iterator[Path]:
    """Yield a key as a file, as the library wants it; only this user can read it."""
    with tempfile.NamedTemporaryFile("w", prefix="dmls-key-", suffix=".pem") as file:
        file.write(key)
        file.flush()
        yield Path(file.name)
