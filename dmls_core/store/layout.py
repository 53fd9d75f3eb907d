"""Where everything lies below the root: the only module that spells keys."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from dmls_core.errors import SubmissionError, ValidationIssue

INCOMING = "incoming/"
JOBS = "registry/jobs/"
SPECS = "registry/specs/"
VERSIONS = "registry/versions/"
SNAPSHOTS = "registry/snapshots/"
RUNS = "runs/"
INFERENCE = "inference/"
MONITOR = "monitor/"
METRICS = "metrics/"
MODELS = "models/"
WAITING = "waiting/"

SPEC_FILE = "spec.toml"
STATUS_JSON = "_status.json"
STATUS_MD = "_status.md"

RUN = "run.json"
"""Says which run the folder belongs to, and what it reads; written first."""
SPEC = "spec.json"
"""The run's own spec, where a user changed the job's for this run."""
RESULT = "result.json"
DECISION = "decision.json"
"""What became of the model; written by the task that decides."""
DEPLOYMENT = "deployment.json"
"""How the model went live, and what was measured of it then; written by the task that has it served."""
DEPLOYED_CARD = "card.html"
"""The model card, with that on it."""
ERROR = "error.json"
PROGRESS = "progress.json"
CLOCK = "clock.json"
"""The time that a search with a timeout has taken, over all attempts."""
REPORT = "report.html"
TRIALS = "trials/"
MODEL = "model/"
VALIDATION = "validation/"
DATA_DOCS = f"{VALIDATION}data_docs/index.html"

NAME_PATTERN = r"[a-z0-9][a-z0-9_-]{0,62}"
_NAME = re.compile(NAME_PATTERN)


class Drop(NamedTuple):
    """A key below ``incoming/`` taken apart, well-formed or not.

    Attributes:
        team: the first folder as it was dropped; any text.
        job: every folder after it (``job``, or ``job/deeper``); any text, empty in the team's own folder.
        filename: what follows the last slash; empty for a folder's own marker.
    """

    team: str
    job: str
    filename: str


def is_name(name: str) -> bool:
    """Say whether ``name`` may name a team or a job."""
    return _NAME.fullmatch(name) is not None


def check_name(kind: str, name: str) -> str:
    """Return ``name`` if it may name a ``kind`` ("team" or "job").

    Raises:
        SubmissionError: it may not; the hint offers a name that may.
    """
    if is_name(name):
        return name
    raise SubmissionError(name_issue(kind, name))


def name_issue(kind: str, name: str) -> ValidationIssue:
    """Say what is wrong with a name of a ``kind`` ("team" or "job") that ``is_name`` refuses."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    better = re.sub(r"[^a-z0-9_-]+", "-", folded).strip("-_")[:63]
    return ValidationIssue(
        f"{name!r} cannot name a {kind}",
        hint=f"rename it to {better!r}" if is_name(better) else "for example 'iris'",
        found=name,
        expected="1 to 63 of a-z, 0-9, '-' and '_', starting with a letter or a digit",
    )


def incoming_folder(team: str, job: str) -> str:
    """Folder of a drop. Any text is taken, since drops with unfit names are answered too."""
    where = f"{team}/{job}" if job else team
    return f"{INCOMING}{where}/" if where else INCOMING


def incoming_file(team: str, job: str, filename: str) -> str:
    """A file of a drop."""
    return incoming_folder(team, job) + filename


def parse_incoming(key: str) -> Drop | None:
    """Take a key below ``incoming/`` apart; ``None`` for any other key.

    ``incoming_file`` puts it together again.
    """
    if not key.startswith(INCOMING):
        return None
    folder, _, filename = key.removeprefix(INCOMING).rpartition("/")
    team, _, job = folder.partition("/")
    return Drop(team, job, filename)


def job_record(team: str, job: str) -> str:
    """The current accepted version of a job."""
    return f"{JOBS}{check_name('team', team)}/{check_name('job', job)}.json"


def versions_folder(team: str, job: str) -> str:
    """Versions of a job that another one has followed."""
    return f"{VERSIONS}{check_name('team', team)}/{check_name('job', job)}/"


def version(team: str, job: str, number: int) -> str:
    """One of them, immutable; in order of keys the oldest comes first."""
    return f"{versions_folder(team, job)}{number:08d}.json"


def spec(sha256: str) -> str:
    """An accepted spec, immutable."""
    return f"{SPECS}{sha256}.json"


def snapshot(version: str) -> str:
    """One version of the whole registry, immutable."""
    return f"{SNAPSHOTS}{version}.json"


def run_folder(team: str, job: str, run_key: str) -> str:
    """Everything that one run wrote."""
    return f"{RUNS}{check_name('team', team)}/{check_name('job', job)}/{run_key}/"


def queue_folder(engine: str) -> str:
    """Who waits for a trainer of an engine."""
    return f"{WAITING}{engine}/"


def waiting(engine: str, team: str, job: str, run_key: str) -> str:
    """One run that waits for its first trainer."""
    return f"{queue_folder(engine)}{check_name('team', team)}.{check_name('job', job)}.{run_key}.json"


def inference_folder(team: str, job: str) -> str:
    """Logged requests to a job's model."""
    return f"{INFERENCE}{check_name('team', team)}/{check_name('job', job)}/"


def monitor_folder(team: str, job: str) -> str:
    """What the monitor found of a job."""
    return f"{MONITOR}{check_name('team', team)}/{check_name('job', job)}/"


DRIFT_FOLDERS = {"requests": "latest/", "data": "latest-data/"}
"""What was compared -> folder of the latest comparison, in the job's ``monitor_folder``."""


def latest_drift(team: str, job: str, source: str, file: str) -> str:
    """A file of a job's latest comparison of a source of ``DRIFT_FOLDERS``."""
    return f"{monitor_folder(team, job)}{DRIFT_FOLDERS[source]}{file}"


def metrics_folder(team: str, job: str) -> str:
    """What Prometheus is told of a job."""
    return f"{METRICS}{check_name('team', team)}/{check_name('job', job)}/"


def trial(number: int) -> str:
    """A finished trial, below a run's folder."""
    return f"{TRIALS}{number:05d}.json"


def model_name(team: str, job: str) -> str:
    """Name of the model in MLflow and in Triton."""
    return f"{check_name('team', team)}.{check_name('job', job)}"


def dag_id(team: str, job: str) -> str:
    """The job's DAG."""
    return f"dmls.{model_name(team, job)}"
