"""Deploy one model to Triton: stage a candidate, promote it, roll it back, or try it as a canary.

A version is first loaded under the candidate's name, next to the served one, and answers its golden rows.
Only then the servers switch to it, one after the other. Each step can be interrupted and repeated, and Triton
always answers with a verified version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dmls_core.errors import DmlsError, NotFoundError, ServingError, UserError, ValidationIssue
from dmls_core.serving.deployment.acceptance import check_candidate, check_run, check_version
from dmls_core.serving.deployment.signed_models import sign_version
from dmls_core.serving.deployment.verification import GoldenRows, Proof
from dmls_core.serving.repository.intents import Intent, clear_intent, write_intent
from dmls_core.serving.repository.options import Canary, ServingOptions
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.client import TritonClient
from dmls_core.serving.triton.loading import load_candidate, load_version, serve_again, unload
from dmls_core.serving.triton.model_config import CANDIDATE, CHALLENGER, table_name
from dmls_core.serving.triton.placement import select_servers, unload_leftovers, update_leftovers

_KEEP = 3
"""Verified versions that stay in the repository, the served one included."""

Finish = Callable[[int, int | None], None]
"""Called with the new and the previous version once Triton serves the new one; moves MLflow's alias."""


@dataclass(frozen=True, slots=True)
class DeployedVersion:
    """A version of ``<team>.<job>`` in the repository.

    Attributes:
        version: the version in the Triton repository.
        previous: the verified version that a rollback would go to, if there is one.
        proof: what the verification measured; ``None`` for a staged version and for a repeated step.
    """

    model: str
    version: int
    previous: int | None
    proof: Proof | None = None


class Deployment:
    """One model in a Triton repository and on the servers that read it."""

    def __init__(
        self, repository: Repository, servers: TritonClient | Sequence[TritonClient], model: str
    ) -> None:
        """Bind to ``<team>.<job>`` on those of all servers on which it is placed; nothing is read yet."""
        self.repository, self.model = repository, model
        every = servers if isinstance(servers, Sequence) else (servers,)
        self.servers = select_servers(every, model)
        self.others = tuple(client for client in every if client not in self.servers)

    def deploy(
        self,
        folder: Path,
        run_key: str = "",
        *,
        max_latency_ms: float | None = None,
        keep: int = _KEEP,
        options: ServingOptions | None = None,
        finish: Finish | None = None,
    ) -> DeployedVersion:
        """Stage a run's ``model/`` folder and promote it; see ``stage`` and ``promote``."""
        version = self.stage(folder, run_key).version
        return self.promote(version, max_latency_ms=max_latency_ms, keep=keep, options=options, finish=finish)

    def stage(self, folder: Path, run_key: str = "") -> DeployedVersion:
        """Write a run's ``model/`` folder as a version, and load it on every server as the candidate.

        What Triton serves does not change. Staging the same files again gives the same version. The folder
        holds ``encoder.json``, ``golden.json``, ``model.json`` and the files of the model's serving format.
        A trainer has signed it for the run ``run_key``; the version is signed for its number too.

        Raises:
            PlatformError: models must be signed, and there is no key here to sign the version with.
            UserError: the model exceeds the size limit, or no installed package serves its format.
            ServingError: a file is damaged and nothing was loaded, or the version could not be
                written or loaded; the candidate is removed then.
        """
        with self.repository.lock(self.model):
            try:
                check_run(folder, self.model, run_key)
            except ServingError as error:
                raise type(error)(f"{error}. {self._serve_again()}") from error
            signature = partial(sign_version, folder, self.model, run_key)
            version = self.repository.add(self.model, folder, signature)
            self.repository.stage(self.model, version, folder)
            try:
                for client in self.servers:
                    self._load_candidate(client, version)
            except ServingError as error:
                raise self._rejected(error) from error
            return DeployedVersion(self.model, version, self.repository.previous(self.model, version))

    def promote(
        self,
        version: int,
        *,
        max_latency_ms: float | None = None,
        keep: int = _KEEP,
        options: ServingOptions | None = None,
        finish: Finish | None = None,
    ) -> DeployedVersion:
        """Verify the candidate on every server, then serve it under the model's own name.

        ``max_latency_ms`` limits the median latency of a request for one row. ``keep`` verified versions stay
        in the repository. Serving options stay as before unless given. If ``finish`` fails, the previous
        version is served again.

        Raises:
            ServingError: verification failed, another publisher staged another candidate, or a server could
                not load the version; all servers serve the previous version then.
        """
        with self.repository.lock(self.model):
            previous, before = self.repository.before(self.model, version)
            if self.repository.staged(self.model) != version:
                if before == version:  # a repeated step
                    return DeployedVersion(self.model, version, previous)
                raise ServingError(
                    f"version {version} of {self.model} is no longer the candidate: another publisher "
                    f"replaced it. {self._serve_again()}"
                )
            golden, proof = self._verify_candidate(version, max_latency_ms)
            had_canary = self.repository.options(self.model).canary is not None
            self.serve(golden, before, finish, options, end_canary=True)
            self.discard_candidate()
            if had_canary:
                self._discard_challenger()
            self.repository.prune(self.model, keep)
            return DeployedVersion(self.model, version, previous, proof)

    def rollback(self, version: int | None = None, *, finish: Finish | None = None) -> DeployedVersion:
        """Serve a verified version again: by default the last one other than the served one.

        If ``finish`` fails, nothing changes.

        Raises:
            NotFoundError: the repository holds no such verified version.
            ServingError: the version is damaged, could not be loaded or failed verification; nothing changes.
        """
        with self.repository.lock(self.model):
            now = self.repository.serving(self.model)
            target = version or self.repository.previous(self.model, now or 0)
            available = self.repository.verified_versions(self.model)
            if target is None or target not in available:
                which = f"version {target}" if target else "earlier version"
                hint = f"kept versions: {', '.join(map(str, available)) or 'none'}"
                raise NotFoundError(
                    ValidationIssue(f"{self.model} has no verified {which} to roll back to", hint=hint)
                )
            check_version(self.repository, self.model, target)
            self.serve(GoldenRows.read(self.repository, self.model, target), now, finish)
            return DeployedVersion(self.model, target, now)

    def take_down(self, begin: Callable[[], None] | None = None) -> int | None:
        """Stop serving the model and its challenger; return the version that was served.

        The versions stay in the repository. ``begin`` is called first; if it fails, nothing changes.

        Raises:
            ServingError: a server or the repository does not answer.
        """
        with self.repository.lock(self.model):
            version = self.repository.serving(self.model)
            write_intent(self.repository.store, self.model, Intent(None, version))
            if begin:
                begin()
            self.serve_nothing()
        return version

    def serve_nothing(self) -> None:
        """Unload the model and its challenger from every server; the lock is held.

        Raises:
            ServingError: a server or the repository does not answer.
        """
        options = self.repository.options(self.model)
        if options.canary:
            self.repository.set_options(self.model, replace(options, canary=None))
            self._discard_challenger()
        self.repository.serve(self.model, None)
        for client in self.servers:
            unload(client, self.model)
        unload_leftovers(self.others, self.model)
        clear_intent(self.repository.store, self.model)

    def verify(self, version: int) -> Proof:
        """Send the golden rows of the served version to every server, over HTTP and gRPC.

        Returns the proof of the slowest server.

        Raises:
            ServingError: an answer differs, or Triton does not answer.
            NotFoundError: the repository has no such version.
        """
        golden = GoldenRows.read(self.repository, self.model, version)
        return _slowest([golden.verify(client, self.model) for client in self.servers])

    def serve(
        self,
        golden: GoldenRows,
        before: int | None,
        finish: Finish | None = None,
        options: ServingOptions | None = None,
        *,
        end_canary: bool = False,
    ) -> None:
        """Switch every server to the version of ``golden``, or leave all at ``before``; the lock is held.

        The version counts as verified afterwards. After an error the record of the change is kept: MLflow may
        have moved the champion although its answer was lost.

        Raises:
            ServingError: a server could not switch; the message says which version is served now.
        """
        version = golden.version
        options_before = self.repository.options(self.model)
        new_options = options or options_before
        switched: list[TritonClient] = []
        write_intent(self.repository.store, self.model, Intent(version, before))
        try:
            self.repository.set_options(
                self.model, replace(new_options, canary=None) if end_canary else new_options
            )
            self.repository.serve(self.model, version, previous=before)
            for client in self.servers:
                switched.append(client)
                load_version(client, self.model, version)
                golden.check(client, self.model)
            if finish:
                finish(version, before)
        except DmlsError as error:
            self.repository.set_options(self.model, options_before)
            self.repository.serve(self.model, before, previous=version)
            outcome = serve_again(switched, self.model, before)
            raise ServingError(f"{error}. {outcome}") from error
        self.repository.confirm(self.model, version)
        clear_intent(self.repository.store, self.model)
        update_leftovers(self.others, self.model, version)
        with suppress(DmlsError):
            # Until this, the table endpoint also accepts the columns of the previous version.
            self._reload_table(version)

    def start_canary(self, folder: Path, run_key: str = "", *, share: float, shadow: bool) -> int:
        """Verify a challenger and send it a share (0 to 1) of the table endpoint's requests.

        A canary answers these requests; with ``shadow`` the challenger only computes answers, which are
        compared with the served version's. A challenger that disappears fails no request: the served version
        answers. Returns the challenger's version.

        Raises:
            NotFoundError: nothing is served yet.
            UserError: the challenger is the served version, or predicts another kind of target.
            ServingError: it could not be loaded, or failed verification; nothing changes then.
        """
        if self.repository.staged(self.model) is not None:
            raise ServingError(
                f"a candidate of {self.model} is being verified: try again once it is deployed"
            )
        version = self.stage(folder, run_key).version
        with self.repository.lock(self.model):
            live = self.repository.serving(self.model)
            try:
                self._check_challenger(version, live)
                golden = GoldenRows.read(self.repository, self.model, version)
                for client in self.servers:
                    self._verify(client, golden)
            finally:
                self.discard_candidate()
            before = self.repository.options(self.model)
            try:
                self.repository.add_challenger(self.model, version, folder)
                for client in self.servers:
                    client.load(self.model + CHALLENGER)
                self.repository.set_options(
                    self.model, replace(before, canary=Canary(version, share, shadow))
                )
                self._reload_table(live)
            except ServingError:
                self.repository.set_options(self.model, replace(before, canary=None))
                with suppress(ServingError):
                    self._reload_table(live)
                self._discard_challenger()
                raise
        return version

    def end_canary(self) -> int | None:
        """Let the served version answer every request; return the challenger's version, if there was one.

        Raises:
            ServingError: a server does not answer.
        """
        with self.repository.lock(self.model):
            before = self.repository.options(self.model)
            self.repository.set_options(self.model, replace(before, canary=None))
            self._reload_table(self.repository.serving(self.model))
            self._discard_challenger()
        return before.canary.version if before.canary else None

    def discard_candidate(self) -> None:
        """Remove the candidate from the repository and from every server that answers; the lock is held."""
        self.repository.unstage(self.model)
        for client in self.servers:
            with suppress(ServingError):  # a server that is down forgets it
                unload(client, self.model + CANDIDATE)

    def _discard_challenger(self) -> None:
        self.repository.remove_challenger(self.model)
        for client in self.servers:
            with suppress(ServingError):
                client.unload(self.model + CHALLENGER)

    def _verify_candidate(self, version: int, max_latency_ms: float | None) -> tuple[GoldenRows, Proof]:
        """Return the candidate's golden rows and the proof of the slowest server."""
        try:
            check_candidate(self.repository, self.model, version)
            golden = GoldenRows.read(self.repository, self.model, version)
            proofs = []
            for client in self.servers:
                self._load_candidate(client, version)
                proofs.append(self._verify(client, golden, max_latency_ms))
        except ServingError as error:
            raise self._rejected(error) from error
        return golden, _slowest(proofs)

    def _load_candidate(self, client: TritonClient, version: int) -> None:
        if self.repository.has_table(self.model + CANDIDATE):
            load_version(client, self.model + CANDIDATE, version)
        else:
            load_candidate(client, self.model, version)

    def _verify(self, client: TritonClient, golden: GoldenRows, max_latency_ms: float | None = None) -> Proof:
        """Send the golden rows to the candidate."""
        candidate = self.model + CANDIDATE
        served_table = not self.repository.has_table(candidate)
        return golden.verify(client, candidate, max_latency_ms, served_table=served_table)

    def _check_challenger(self, version: int, live: int | None) -> None:
        if live is None:
            raise NotFoundError(
                ValidationIssue(
                    f"{self.model} is not served: a canary needs a served version", hint="deploy it"
                )
            )
        if version == live:
            raise UserError(
                ValidationIssue(f"the challenger is version {live} of {self.model}, which is already served")
            )
        challenger, served = (
            self.repository.read(self.model, number, "model.json")["task"] for number in (version, live)
        )
        if challenger != served:
            raise UserError(
                ValidationIssue(
                    f"{self.model} is a {served}, and the challenger a {challenger}: their outputs differ"
                )
            )

    def _reload_table(self, version: int | None) -> None:
        """Load the table endpoint if its configuration changes; the forest stays loaded."""
        if version is not None:
            self.repository.serve(self.model, version)
            for client in self.servers:
                client.load(table_name(self.model))

    def _rejected(self, error: ServingError) -> ServingError:
        """Discard the candidate; return the error with what is still served."""
        self.discard_candidate()
        return ServingError(f"{error}. {self._serve_again()}")

    def _serve_again(self) -> str:
        """Have servers that restarted serve the configured version; return what is served, for users."""
        return serve_again(self.servers, self.model, self.repository.serving(self.model))


def _slowest(proofs: Sequence[Proof]) -> Proof:
    return max(proofs, key=lambda proof: proof.milliseconds)
