"""Drop a submission from the browser: data in parts, the spec last, as any S3 client leaves it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from dmls_core.errors import SubmissionError
from dmls_core.intake import IntakeLimits, group_submissions, read_status
from dmls_core.intake.submit import check_data_name
from dmls_core.store import Registry, layout
from dmls_core.store.base import MAX_PARTS
from dmls_core.web.api.submit import RAW, FileName
from dmls_core.web.api.submit_access import Submitter, check_change
from dmls_core.web.backend import open_store, open_store_for_uploads

router = APIRouter(tags=["Submit"])

PART = 8 << 20
"""Bytes of one part, unless the file has so many that there would be too many parts."""

Upload = Annotated[
    str, Path(min_length=1, max_length=512, description="As beginning the upload returned it.")
]
Size = Annotated[int, Query(ge=1, le=1 << 60, description="Bytes of the whole file.")]


class SpecFile(BaseModel):
    """The spec to drop."""

    toml: str = Field(max_length=256 * 1024, description="Content of spec.toml.")


@router.get("/drops/{team}/{name}", summary="Show a drop and its answer")
def drop(
    caller: Submitter,
    fingerprint: Annotated[str, Query(max_length=64, description="Of the drop that is followed.")] = "",
) -> dict[str, Any]:
    """Return what lies in a job's folder, and the answer to it.

    ``answered`` says whether ``status`` answers what lies there now; with ``fingerprint``, whether it answers
    that very drop.
    """
    team, name = caller.team, caller.name
    store = open_store()
    listing = list(store.list(layout.incoming_folder(team, name)))
    found = next((entry for entry in group_submissions(listing) if entry.job == name), None)
    status, record = read_status(store, team, name), Registry(store).job(team, name)
    wanted = fingerprint or (found.fingerprint if found else "")
    files = [info for info in listing if "/" not in info.key.removeprefix(layout.incoming_folder(team, name))]
    return {
        "files": [
            info.key.rpartition("/")[2] for info in files if info.key.lower().endswith((".csv", ".parquet"))
        ],
        "has_spec": bool(found and found.spec),
        "version": record.version if record else 0,
        "fingerprint": found.fingerprint if found else "",
        "status": status.as_json() if status else None,
        "answered": bool(status and wanted and status.fingerprint == wanted),
    }


@router.post("/drops/{team}/{name}/uploads", summary="Begin an upload", status_code=201)
def begin(caller: Submitter, file: FileName, size: Size) -> dict[str, Any]:
    """Begin to upload a data file in parts: each is put below ``uploads/{upload}/{number}``, from 1 on.

    Returned are the upload's id and ``part_bytes``, the size of every part but the last.
    """
    store = open_store()
    check_change(caller, store)
    limits = IntakeLimits.from_environment()
    if size > limits.data_bytes:
        raise SubmissionError(f"{file} is too large: {size:,} bytes, at most {limits.data_bytes:,} are taken")
    part = max(PART, -(-size // MAX_PARTS))
    return {"upload": store.begin_upload(_key(caller, file)), "part_bytes": part}


@router.put(
    "/drops/{team}/{name}/uploads/{upload}/{number}",
    summary="Upload a part",
    status_code=204,
    openapi_extra=RAW,
)
async def put_part(
    request: Request,
    caller: Submitter,
    upload: Upload,
    number: Annotated[int, Path(ge=1, le=MAX_PARTS)],
    file: FileName,
) -> None:
    """Write one part; sent again, it replaces the one before. Nothing is there before it is finished."""
    key = _key(caller, file)
    store = open_store_for_uploads()
    await run_in_threadpool(store.upload_part, key, upload, number, await request.body())


@router.post("/drops/{team}/{name}/uploads/{upload}/finish", summary="Finish an upload", status_code=204)
def finish(caller: Submitter, upload: Upload, file: FileName, size: Size) -> None:
    """Put the parts together; 409 if they are not the whole file."""
    store = open_store_for_uploads()
    check_change(caller, store)
    store.finish_upload(_key(caller, file), upload, size)


@router.delete("/drops/{team}/{name}/uploads/{upload}", summary="Give an upload up", status_code=204)
def abort(caller: Submitter, upload: Upload, file: FileName) -> None:
    """Give an upload up."""
    open_store().abort_upload(_key(caller, file), upload)


@router.put("/drops/{team}/{name}/spec", summary="Submit: write the spec")
def put_spec(caller: Submitter, body: SpecFile) -> dict[str, Any]:
    """Write ``spec.toml``, which has the drop admitted: the data must lie there by now.

    Returned is the drop's ``fingerprint``, by which its answer is known. Whatever the spec says, it is
    dropped: admission answers, as it does to any other drop.
    """
    store = open_store()
    check_change(caller, store)
    key = layout.incoming_file(caller.team, caller.name, layout.SPEC_FILE)
    store.put(key, body.toml.encode())
    listing = store.list(layout.incoming_folder(caller.team, caller.name))
    found = next(entry for entry in group_submissions(listing) if entry.job == caller.name)
    return {"fingerprint": found.fingerprint}


def _key(caller: Submitter, file: str) -> str:
    """Return the key of a data file.

    Raises:
        SubmissionError: no data file can have this name.
    """
    if problems := check_data_name(file):
        raise SubmissionError(problems)
    return layout.incoming_file(caller.team, caller.name, file)
