"""Change what is served of a job outside of its runs, in Triton, in MLflow and in the records."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmls_core.errors import StoreError
from dmls_core.intake import report_served, report_stopped
from dmls_core.monitoring.prometheus import count
from dmls_core.store import Store, delete_served, write_served

if TYPE_CHECKING:
    from dmls_core.serving import DeployedVersion, Deployment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedJob:
    """A job's model in Triton and MLflow, with its records in ``store``, if the platform has one.

    ``by`` of the methods is the user, for MLflow and the records.
    """

    team: str
    name: str
    deployment: Deployment
    mlflow_uri: str
    store: Store | None

    def roll_back(self, version: int | None, by: str) -> DeployedVersion:
        """Serve an earlier version again and make it the champion, in one transaction.

        ``version`` is the one in Triton; ``None`` selects the previous verified one. If it cannot be served,
        nothing changes; errors as of ``Deployment.rollback``.
        """
        from dmls_core.tracking.registry import promote_served

        model = self.deployment.model

        def make_champion(served: int, _: int | None) -> None:
            promote_served(self.mlflow_uri, model, served, deployed_by=by)

        deployed = self.deployment.rollback(version, finish=make_champion)
        if self.store:
            description = self.deployment.repository.read(model, deployed.version, "model.json")
            served = write_served(self.store, self.team, self.name, deployed.version, description, by=by)
            count(self.store, self.team, self.name, "rollbacks")
            try:
                report_served(self.store, self.team, self.name, served)
            except StoreError as error:
                log.warning("the status of %s does not mention the rollback: %s", model, error)
        return deployed

    def stop(self, by: str) -> int | None:
        """Stop serving; return the version that was served, ``None`` if there was none.

        The versions are kept: a rollback serves one again. A repeated call completes an interrupted one.

        Raises:
            TrackingError: MLflow does not answer; nothing changes.
            ServingError: a server or the repository does not answer.
        """
        from dmls_core.tracking.registry import remove_champion

        model = self.deployment.model
        version = self.deployment.take_down(lambda: remove_champion(self.mlflow_uri, model))
        if self.store:
            delete_served(self.store, self.team, self.name)
            report_stopped(self.store, self.team, self.name, version, by)
        return version
