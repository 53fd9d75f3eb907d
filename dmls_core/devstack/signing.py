"""The key with which the trainers of an embedded platform sign models."""

from __future__ import annotations

from dmls_core.devstack.context import Context
from dmls_core.settings import SIGNERS, SIGNING_KEY


def signing_environment(context: Context) -> dict[str, str]:
    """Return Airflow's variables: workers pass the private key on to trainers, and check with the public."""
    return {SIGNING_KEY: context.secret("signing_key")} | signers_environment(context)


def signers_environment(context: Context) -> dict[str, str]:
    """Return the variable with the public key."""
    from dmls_core.serving.deployment.signature import public_key

    return {SIGNERS: public_key(context.secret("signing_key"))}


def sign_earlier_models(context: Context) -> None:
    """Sign the models of a release that did not sign; raise ServingError if a version's files are damaged."""
    from dmls_core.serving import Repository
    from dmls_core.serving.deployment.signed_models import sign_versions
    from dmls_core.serving.triton.model_config import BOOKKEEPING

    repository = Repository(str(context.model_repository))
    for record in sorted((repository.root / BOOKKEEPING).glob("*/record.json")):
        sign_versions(repository, record.parent.name, context.secret("signing_key"))
