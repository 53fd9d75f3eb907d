"""``dmls export``: use a served model outside the platform."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from dmls_core.cli.console import out, print_json
from dmls_core.cli.options import JobArgument, JsonOption, parse_job
from dmls_core.settings import load_settings


def export(
    job: JobArgument,
    target: Annotated[Literal["triton", "kserve", "onnx"], typer.Option(help="Format.")] = "triton",
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="New or empty folder. Default: JOB-TARGET."),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(metavar="VERSION", min=1, help="Version in Triton. Default: the served one."),
    ] = None,
    uri: Annotated[
        str,
        typer.Option(
            metavar="URI",
            help="Where you will store the folder models/, such as s3://bucket/iris; it is written into the "
            "manifest. KServe needs it; for triton it adds kubernetes.yaml.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a served version as a Triton repository, a KServe InferenceService or an ONNX file."""
    from dmls_core.serving.export import export_version
    from dmls_core.serving.repository import Repository
    from dmls_core.store import layout

    name = parse_job(job)
    folder = folder or Path(f"{name.name}-{target}")
    repository = Repository(load_settings().require("triton_repository"))
    model = layout.model_name(*name)
    done = export_version(repository, model, target, folder, version=version, uri=uri)
    if as_json:
        print_json(done)
        return
    out.print(f"{model} version {done['version']} is in {escape(str(folder))}:")
    for file in done["files"]:
        out.print(f"  {escape(file)}")
    if target == "onnx":
        out.print(f"ONNX Runtime agrees with the golden rows within {done['largest_difference']:.1g}")
