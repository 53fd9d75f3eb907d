"""``dmls train``: the command of the trainer's container, with or without Airflow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from dmls_core.cli.options import JsonOption
from dmls_core.settings import load_settings


def train(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="The spec: a path or an s3:// URL.")],
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Data files: paths or s3:// URLs.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="Output: a folder or an s3:// URL.")],
    team: Annotated[str, typer.Option(help="The team that owns the job.")] = "local",
    name: Annotated[str, typer.Option(help="The job's name.")] = "model",
    run_key: Annotated[str, typer.Option(help="Key of the run. Default: derived from spec and data.")] = "",
    engine: Annotated[
        Literal["auto", "cpu", "gpu"],
        typer.Option(help="The engine, instead of the spec's."),
    ] = "auto",
    etag: Annotated[
        list[str] | None,
        typer.Option(help="Required ETag of a data file; give it once per file.", show_default=False),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Ignore rows before this time, by \\[columns] time.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Ignore rows from this time on, by \\[columns] time."),
    ] = None,
    champion: Annotated[
        str, typer.Option(metavar="DIR", help="Folder or s3:// URL of the champion's run, to compare with.")
    ] = "",
    champion_version: Annotated[int, typer.Option(help="The champion's version in MLflow's registry.")] = 0,
    worker: Annotated[
        int,
        typer.Option(
            help="Number of this trainer if several share a search (DMLS_STUDY_URL); 0 writes the result."
        ),
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Tune and train a model, and write the model and its result.

    An interrupted run continues if it is started again with the same --out.
    """
    load_settings()  # for the credentials of an embedded platform
    from dmls_core.training.request import TrainRequest
    from dmls_core.training.run import run_train

    request = TrainRequest(
        spec,
        tuple(data),
        out,
        team=team,
        name=name,
        run_key=run_key,
        engine=engine,
        etags=tuple(etag or ()),
        since=parse_time(since),
        until=parse_time(until),
        champion=champion,
        champion_version=champion_version,
        worker=worker,
    )
    run_train(request, as_json=as_json)


def parse_time(text: str | None) -> datetime | None:
    """Parse a time in ISO 8601, in UTC unless it has a time zone."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time such as 2026-01-31T14:05:00+00:00") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
