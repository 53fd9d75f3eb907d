"""What the submit page asks before anything is dropped: a look at the data, and specs written and checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from dmls_core.errors import DataError, SpecError, UserError, ValidationIssue
from dmls_core.store import layout
from dmls_core.web.api.submit_access import Submitter, may_submit
from dmls_core.web.api.submit_numbers import marked, unmarked
from dmls_core.web.backend import open_store
from dmls_core.web.security import Caller
from dmls_core.web.security.access import NAME

if TYPE_CHECKING:
    from dmls_core.spec import Spec

router = APIRouter(tags=["Submit"])

MOST_LISTED = 500
"""Data files that are offered."""

MOST_LOOKED_AT = 20_000
"""Objects below a team's folder that are looked through for them."""

FileName = Annotated[str, Query(max_length=255, description="The file's name; its ending says the format.")]
Columns = Annotated[list[str], Field(max_length=20_000, description="The data's columns, where known.")]
RAW = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class SpecDocument(BaseModel):
    """A spec as the object that its TOML stands for."""

    document: dict[str, Any] = Field(
        description='Keys and tables of the spec, by name; 1.0, other than 1, is `{"float": 1}`.'
    )
    columns: Columns = []


class SpecText(BaseModel):
    """A spec as TOML."""

    toml: str = Field(max_length=1 << 20)
    columns: Columns = []


@router.get("/catalogue", summary="List models and hyperparameters")
def catalogue() -> dict[str, Any]:
    """Return the models with their metrics and hyperparameters, each with a range to begin with."""
    from dmls_core.models.form import catalogue_form

    return dict(marked(catalogue_form()))


@router.post("/sniff", summary="Look at the beginning of a file", openapi_extra=RAW)
async def sniff_upload(
    request: Request,
    file: FileName,
    size: Annotated[int, Query(ge=0, le=1 << 60, description="Bytes of the whole file.")],
) -> dict[str, Any]:
    """Look at a data file before it is uploaded.

    The body is the first 1 MiB of a CSV, a whole Parquet file of at most 8 MiB, or the last 1 MiB of a larger
    one. Returned are the columns and what they seem to be, a target, a task, the first rows, and a spec to
    begin with, as a document and as TOML.
    """
    return await run_in_threadpool(_sniff, file, await request.body(), size)


@router.get("/drops/{team}/{name}/sniff", summary="Look at a file in a job's folder")
def sniff_dropped(caller: Submitter, file: FileName) -> dict[str, Any]:
    """Look at a data file that lies in a job's folder already; see ``sniff_upload``."""
    from dmls_core.intake.sniff import HEAD, WHOLE_PARQUET
    from dmls_core.intake.submit import check_data_name

    if problems := check_data_name(file):
        raise DataError(problems)
    whole = file.lower().endswith(".parquet")
    key = layout.incoming_file(caller.team, caller.name, file)
    head, info = open_store().read(key, limit=WHOLE_PARQUET if whole else HEAD)
    if whole and info.size > len(head):
        hint = "write the spec by hand, or choose the file from your own disk"
        raise DataError(
            ValidationIssue("the file is too large to be looked at where it lies", hint=hint, file=file)
        )
    return _sniff(file, head, info.size)


@router.get("/drops/{team}", summary="List data files in S3")
def dropped_files(
    user: Caller, team: Annotated[str, Path(pattern=NAME, description="Whose files are listed.")]
) -> dict[str, Any]:
    """Return the data files that lie in the folders of a team's jobs, the latest first."""
    from itertools import islice

    from dmls_core.intake.submit import check_data_name

    found, allowed = [], {}
    for info in islice(open_store().list(layout.incoming_folder(team, "")), MOST_LOOKED_AT):
        drop = layout.parse_incoming(info.key)
        if not drop or not layout.is_name(drop.job) or check_data_name(drop.filename):
            continue
        if drop.job not in allowed:
            allowed[drop.job] = may_submit(user, team, drop.job)
        if allowed[drop.job]:
            found.append(info)
    found.sort(key=lambda info: info.modified, reverse=True)
    return {
        "files": [
            {
                "team": team,
                "name": info.key.split("/")[2],
                "file": info.key.rpartition("/")[2],
                "size": info.size,
                "modified": info.modified.isoformat(),
            }
            for info in found[:MOST_LISTED]
        ]
    }


@router.post("/specs/toml", summary="Write a spec as TOML")
def write_spec(body: SpecDocument) -> dict[str, Any]:
    """Write a spec as TOML, and say what admission would say of it."""
    from dmls_core.spec.toml_text import toml_text

    return _checked(toml_text(unmarked(body.document)), body.columns)


@router.post("/specs/check", summary="Check a spec")
def check_spec(body: SpecText) -> dict[str, Any]:
    """Say what admission would say of a spec: each problem with its line, column and how to mend it."""
    return _checked(body.toml, body.columns)


def _sniff(file: str, content: bytes, size: int) -> dict[str, Any]:
    from dmls_core.intake.sniff import read_sample, sniff
    from dmls_core.intake.sniff.apart import sniff_apart
    from dmls_core.spec.toml_text import toml_text

    if file.lower().endswith(".parquet"):
        found = sniff_apart(file, content, size)
    else:
        found = sniff(file, read_sample(file, content, complete=len(content) >= size)).as_json()
    return {**found, "document": marked(found["document"]), "toml": toml_text(found["document"])}


def _checked(toml: str, columns: list[str]) -> dict[str, Any]:
    from dmls_core.intake.csv_header import check_columns
    from dmls_core.intake.csv_rows import Row
    from dmls_core.models import load_spec

    spec: Spec | None = None
    problems: tuple[ValidationIssue, ...] = ()
    source = toml.encode()
    try:
        spec = load_spec(source)
        problems = tuple(check_columns("the data", Row(1, columns), spec)) if columns else ()
    except UserError as error:
        problems = error.issues
    return {
        "valid": not problems,
        "toml": toml,
        "problems": [problem.as_json() for problem in problems],
        "document": _document(source),
        "gist": _gist(spec) if spec and not problems else None,
    }


def _document(source: bytes) -> dict[str, Any] | None:
    """Return the object that a spec's TOML stands for; None where it is not TOML, or no JSON can hold it."""
    from dmls_core.spec import SpecLimits
    from dmls_core.spec.document import read_document

    try:
        document = read_document(source, layout.SPEC_FILE, SpecLimits.from_environment()).data
        json.dumps(document, allow_nan=False)
    except (SpecError, TypeError, ValueError):
        return None
    return dict(marked(document))


def _gist(spec: Spec) -> dict[str, Any]:
    return {
        "models": [search.name for search in spec.models],
        "n_trials": spec.n_trials,
        "metric": spec.search.metric,
        "target": spec.columns.target,
        "holdout": spec.evaluation.holdout,
        "deploy": spec.deploy.mode,
    }
