"""Check that what Triton serves is what MLflow calls champion."""

from __future__ import annotations

from dmls_core.devstack.doctor.check import Check
from dmls_core.errors import DmlsError
from dmls_core.settings import Settings

NAME = "served versions"


def check_served_versions(settings: Settings) -> list[Check]:
    """Hold the champions of MLflow against the versions that each Triton server answers with."""
    if not (settings.mlflow_uri and settings.triton_http and settings.triton_grpc):
        return []
    from dmls_core.serving import triton_servers
    from dmls_core.tracking import champions

    found = []
    try:
        wanted = champions(settings.mlflow_uri)
        with triton_servers(settings.triton_http, settings.triton_grpc) as servers:
            for client in servers:
                for model, version in wanted.items():
                    if version is not None and (served := client.versions(model)) != (version,):
                        found.append(_disagreement(client.addresses["http"], model, version, served))
    except DmlsError as error:
        return [Check(NAME, "broken", str(error), "mend MLflow and Triton first")]
    return found or [Check(NAME, "ok", f"Triton serves the champion of each of {len(wanted)} models")]


def _disagreement(address: str, model: str, version: int, served: tuple[int, ...]) -> Check:
    job = model.replace(".", "/", 1)
    now = f"version {served[0]}" if served else "no version"
    hint = f"`dmls rollback {job} --to {version}` has Triton serve the champion"
    if served:
        hint += f"; `dmls rollback {job} --to {served[0]}` makes what is served the champion"
    return Check(
        NAME,
        "broken",
        f"{model}: MLflow's champion is version {version} in Triton, {address} serves {now}",
        hint,
    )
