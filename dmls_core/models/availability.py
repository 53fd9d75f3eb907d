"""What a spec may say already, though its behaviour comes with a later release: refused, never ignored."""

from __future__ import annotations

from dmls_core.spec import Findings, Spec


def check_available(spec: Spec, findings: Findings) -> None:
    """Note everything in ``spec`` that this release does not do."""
    present = {
        ("data", "partition"): spec.data.partition is not None,
        ("columns", "weight"): spec.columns.weight is not None,
        ("evaluation", "split"): spec.evaluation.split == "time",
        ("resources", "gpus"): (spec.resources.gpus or 0) > 1,
    }
    for path, here in present.items():
        if here:
            findings.add(path, f"{_what(path)} is not available yet", hint=_instead(path))


def _what(path: tuple[str, str]) -> str:
    return {
        ("evaluation", "split"): "a split by time",
        ("resources", "gpus"): "more than one GPU",
    }.get(path, path[-1])


def _instead(path: tuple[str, str]) -> str:
    return {
        ("evaluation", "split"): 'split = "random"',
        ("resources", "gpus"): "write 1",
    }.get(path, "leave it out")
