"""Keys that sign models, as ``openssl ecparam -name prime256v1 -genkey`` makes them."""

from __future__ import annotations

from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


class KeyPair(NamedTuple):
    """A private and its public key, in PEM."""

    private: str
    public: str


def key_pair() -> KeyPair:
    """Return a new pair."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(private.decode(), public.decode())
