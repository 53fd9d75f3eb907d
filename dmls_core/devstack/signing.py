"""The key with which an embedded platform signs models."""

from __future__ import annotations

from dmls_core.devstack.context import Context
from dmls_core.settings import SIGNERS, SIGNING_KEY


def signing_environment(context: Context) -> dict[str, str]:
    """Return the variables of whatever trains or deploys: it signs with the private key, others check."""
    from dmls_core.serving.deployment.signature import public_key

    key = context.secret("signing_key")
    return {SIGNING_KEY: key, SIGNERS: public_key(key)}


def sign_earlier_models(context: Context) -> None:
    """Sign the versions that earlier releases did not sign; raise ServingError if files are damaged."""
    from dmls_core.serving import Repository
    from dmls_core.serving.deployment.signed_models import sign_versions
    from dmls_core.serving.triton.model_config import BOOKKEEPING

    repository = Repository(str(context.model_repository))
    for record in sorted((repository.root / BOOKKEEPING).glob("*/record.json")):
        sign_versions(repository, record.parent.name, context.secret("signing_key"))
