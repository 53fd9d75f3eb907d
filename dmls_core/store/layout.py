"""Keys of all objects below the root of a store; no other module spells keys."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from dmls_core.errors import SubmissionError, ValidationIssue
from dmls_core.store.base import is_key

INCOMING = "incoming/"
SCORING = "scoring/"
STRICT = "strict/"
"""Folder of a job in ``scoring/``: rows unlike those of the training are refused in its files."""
SCORED = "scored/"
JOBS = "registry/jobs/"
CHANGE = "registry/change.json"
_SPECS = "registry/specs/"
VERSIONS = "registry/versions/"
SNAPSHOTS = "registry/snapshots/"
SERVED = "registry/served/"
RUNS = "runs/"
SOURCES = "sources/"
INFERENCE = "inference/"
MONITOR = "monitor/"
METRICS = "metrics/"
REQUESTS = "requests/"
PROCESSES = "processes/"
"""Records of Triton's processes that ended."""
WAITING = "waiting/"
LONGEST_SHOWN = 100
"""Characters of a wrong name that a message shows."""
PROBES = "doctor/"
"""Objects that ``dmls doctor`` writes, reads and deletes."""

SPEC_FILE = "spec.toml"
STATUS_JSON = "_status.json"
STATUS_MD = "_status.md"

RUN = "run.json"
"""Identity of the run and its inputs; written first."""
SPEC = "spec.json"
"""Spec of this run, if a user changed the job's spec for it."""
RESULT = "result.json"
DECISION = "decision.json"
"""Outcome of the model, written by the task that decides."""
DEPLOYMENT = "deployment.json"
"""Deployment of the model with its measured latency, written by the task that deploys it."""
DEPLOYED_CARD = "card.html"
"""Model card that includes the deployment."""
ERROR = "error.json"
PROGRESS = "progress.json"
CLOCK = "clock.json"
"""Time used by a search with a timeout, over all attempts."""
_LEAVE = "leave-"
"""Followed by a trainer's number: it leaves the search after its trial, because another run waits."""
CLUSTER = "cluster.json"
"""Address and key of the leader of a run with several nodes, until these have joined."""
REPORT = "report.html"
INSIGHT = "insight.json"
"""What the run's page shows beyond the result: examples, segments, trials on equal terms."""
TRIALS = "trials/"
MODEL = "model/"
VALIDATION = "validation/"
DATA_DOCS = f"{VALIDATION}data_docs/index.html"

LONGEST_SCORED = 250
"""Bytes of the name of a file to score: its record adds `.json`, and file systems and SeaweedFS allow 255."""

NAME_PATTERN = r"[a-z0-9][a-z0-9_-]{0,62}"
_NAME = re.compile(NAME_PATTERN)


class IncomingKey(NamedTuple):
    """The parts of a key below ``incoming/``, valid or not.

    ``job`` may have slashes, and is empty for the team's folder; ``filename`` is empty for a folder's marker.
    """

    team: str
    job: str
    filename: str


@lru_cache(maxsize=1 << 16)
def is_name(name: str) -> bool:
    """Return whether ``name`` is valid for a team or a job."""
    return _NAME.fullmatch(name) is not None


def check_name(resource: str, name: str) -> str:
    """Return ``name`` if it is valid for a ``resource`` ("team" or "job"), else raise ``SubmissionError``."""
    if is_name(name):
        return name
    raise SubmissionError(name_issue(resource, name))


def name_issue(resource: str, name: str) -> ValidationIssue:
    """Return the issue of a name of a ``resource`` ("team" or "job") that ``is_name`` rejects."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    better = re.sub(r"[^a-z0-9_-]+", "-", folded).strip("-_")[:63]
    shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."
    return ValidationIssue(
        f"{shown!r} cannot name a {resource}",
        hint=f"rename it to {better!r}" if is_name(better) else "for example 'iris'",
        found=shown,
        expected="1 to 63 of a-z, 0-9, '-' and '_', starting with a letter or a digit",
    )


def incoming_folder(team: str, job: str) -> str:
    """Return the folder of a submission; any names are accepted, so that every submission gets an answer."""
    where = f"{team}/{job}" if job else team
    return f"{INCOMING}{where}/" if where else INCOMING


def incoming_file(team: str, job: str, filename: str) -> str:
    """Return the key of a file of a submission."""
    return incoming_folder(team, job) + filename


def parse_incoming(key: str) -> IncomingKey | None:
    """Return the parts of a key below ``incoming/``, or ``None`` for others; inverse of ``incoming_file``."""
    if not key.startswith(INCOMING):
        return None
    folder, _, filename = key.removeprefix(INCOMING).rpartition("/")
    team, _, job = folder.partition("/")
    return IncomingKey(team, job, filename)


def job_record(team: str, job: str) -> str:
    """Return the key of the current accepted version of a job."""
    return f"{JOBS}{check_name('team', team)}/{check_name('job', job)}.json"


def versions_folder(team: str, job: str) -> str:
    """Return the folder of a job's previous versions."""
    return f"{VERSIONS}{check_name('team', team)}/{check_name('job', job)}/"


def version(team: str, job: str, number: int) -> str:
    """Return the key of a previous version of a job, immutable; keys sort from old to new."""
    return f"{versions_folder(team, job)}{number:08d}.json"


def served(team: str, job: str) -> str:
    """Return the key of the record of what is served of a job."""
    return f"{SERVED}{check_name('team', team)}/{check_name('job', job)}.json"


def spec(sha256: str) -> str:
    """Return the key of an accepted spec, immutable."""
    return f"{_SPECS}{sha256}.json"


def snapshot(version: str) -> str:
    """Return the key of one version of the whole registry, or of a part of it, immutable."""
    return f"{SNAPSHOTS}{version}.json"


def runs_folder(team: str, job: str) -> str:
    """Return the folder of a job's runs."""
    return f"{RUNS}{check_name('team', team)}/{check_name('job', job)}/"


def run_folder(team: str, job: str, run_key: str) -> str:
    """Return the folder with all files of a run."""
    return f"{runs_folder(team, job)}{run_key}/"


def source_folder(team: str, job: str) -> str:
    """Return the folder with the snapshots of the source that a job's spec names."""
    return f"{SOURCES}{check_name('team', team)}/{check_name('job', job)}/"


def source_snapshot(team: str, job: str, sha256: str) -> str:
    """Return the key of a snapshot, immutable; ``sha256`` is that of its content."""
    return f"{source_folder(team, job)}{sha256}.parquet"


def source_files(team: str, job: str, listing: str) -> str:
    """Return the key of the record which snapshot a listing of files became; ``listing`` is its hash."""
    return f"{source_folder(team, job)}{listing}.json"


def leave(worker: int) -> str:
    """Return the name of the object in a run's folder that asks a trainer to leave the search."""
    return f"{_LEAVE}{worker}"


def queue_folder(engine: str) -> str:
    """Return the folder of runs that wait for a trainer on an engine."""
    return f"{WAITING}{engine}/"


def waiting(engine: str, team: str, job: str, run_key: str) -> str:
    """Return the key of a run that waits for its first trainer."""
    return f"{queue_folder(engine)}{check_name('team', team)}.{check_name('job', job)}.{run_key}.json"


def inference_folder(team: str, job: str) -> str:
    """Return the folder of a job's logged inference requests."""
    return f"{INFERENCE}{check_name('team', team)}/{check_name('job', job)}/"


def monitor_folder(team: str, job: str) -> str:
    """Return the folder of a job's monitoring results."""
    return f"{MONITOR}{check_name('team', team)}/{check_name('job', job)}/"


def scoring_file(team: str, job: str, file: str) -> str:
    """Return the key of a file to score; ``file`` may be in a subfolder of the job's folder."""
    return f"{SCORING}{check_name('team', team)}/{check_name('job', job)}/{file}"


def parse_scoring(key: str) -> tuple[str, str, str] | None:
    """Return team, job and file of a key below ``scoring/`` if it names a file to score."""
    folder, _, rest = key.partition("/")
    team, _, rest = rest.partition("/")
    job, _, file = rest.partition("/")
    if f"{folder}/" != SCORING or not file or is_hidden(file):
        return None
    if not (is_name(team) and is_name(job) and is_key(key) and is_key(f"{key}.json")):
        return None
    return (team, job, file) if len(file.rpartition("/")[2].encode()) <= LONGEST_SCORED else None


def is_hidden(key: str) -> bool:
    """Return whether a name in a key starts with a dot or an underscore, or the key is that of a folder."""
    return key.endswith("/") or any(part.startswith((".", "_")) for part in key.split("/"))


def scored_file(team: str, job: str, file: str) -> str:
    """Return the key of a file's predictions, or of their record."""
    return f"{SCORED}{check_name('team', team)}/{check_name('job', job)}/{file}"


DRIFT_FOLDERS = {"requests": "latest/", "data": "latest-data/"}
"""Compared data -> folder of its latest comparison, in the job's ``monitor_folder``."""


LABELS_FOLDER = "latest-labels/"
"""Folder of the latest evaluation with delayed labels, in the job's ``monitor_folder``."""

COMPARED = (*DRIFT_FOLDERS, "labels")
"""What the monitor compares with the training."""


def latest_comparison(team: str, job: str, source: str, suffix: str) -> str:
    """Return the key of the latest comparison of ``source``, one of ``COMPARED``, as ``json`` or ``html``."""
    path = f"{DRIFT_FOLDERS[source]}drift" if source in DRIFT_FOLDERS else f"{LABELS_FOLDER}decay"
    return f"{monitor_folder(team, job)}{path}.{suffix}"


def requests_file(day: str) -> str:
    """Return the key of the requests of a day, such as ``2026-11-26``."""
    return f"{REQUESTS}{day}.json"


def process_failures(model: str) -> str:
    """Return the key of the record of a model's processes that ended; ``model`` is its name in Triton."""
    return f"{PROCESSES}{model}.json"


def metrics_folder(team: str, job: str) -> str:
    """Return the folder of a job's counters for Prometheus."""
    return f"{METRICS}{check_name('team', team)}/{check_name('job', job)}/"


def trial(number: int) -> str:
    """Return the key of a finished trial, below a run's folder."""
    return f"{TRIALS}{number:05d}.json"


def model_name(team: str, job: str) -> str:
    """Return the model's name in MLflow and Triton."""
    return f"{check_name('team', team)}.{check_name('job', job)}"


def dag_id(team: str, job: str) -> str:
    """Return the id of the job's DAG."""
    return f"dmls.{model_name(team, job)}"


def team_prefix(team: str) -> str:
    """Return what the ids of the DAGs of a team's jobs begin with, and those of no other DAG."""
    return f"dmls.{check_name('team', team)}."


def is_of_job(dag_id: str) -> bool:
    """Return whether a DAG of DMLS is a job's: the others, such as ``dmls.intake``, have one name less."""
    return dag_id.count(".") == 2


def parse_dag_id(dag_id: str) -> tuple[str, str]:
    """Return team and name of the job of a DAG; inverse of ``dag_id``."""
    _, team, job = dag_id.split(".")
    return team, job
