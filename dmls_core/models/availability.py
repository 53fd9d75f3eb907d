"""What a spec may say already, though its behaviour comes with a later release: refused, never ignored."""

from __future__ import annotations

from dmls_core.spec import Findings, Spec

_STRATEGIES = ("auto", "tpe", "random", "grid")


def check_available(spec: Spec, findings: Findings) -> None:
    """Note everything in ``spec`` that this release does not do."""
    present = {
        ("model",): len(spec.models) > 1,
        ("schedule",): spec.schedule is not None,
        ("drift",): spec.drift is not None,
        ("search", "workers"): spec.search.workers > 1,
        ("search", "strategy"): spec.search.strategy not in _STRATEGIES,
        ("search", "early_stop"): spec.search.early_stop is not None,
        ("data", "partition"): spec.data.partition is not None,
        ("columns", "weight"): spec.columns.weight is not None,
        ("columns", "time"): spec.columns.time is not None,
        ("evaluation", "split"): spec.evaluation.split == "time",
        ("deploy", "max_latency_ms"): spec.deploy.max_latency_ms is not None,
        ("resources", "gpus"): (spec.resources.gpus or 0) > 1,
    }
    for path, here in present.items():
        if here:
            findings.add(path, f"{_what(path)} is not available yet", hint=_instead(path))


def _what(path: tuple[str, ...]) -> str:
    return {
        ("model",): "more than one model in a spec",
        ("search", "workers"): "more than one worker",
        ("search", "strategy"): "this strategy",
        ("evaluation", "split"): "a split by time",
        ("resources", "gpus"): "more than one GPU",
    }.get(path, f"[{path[0]}]" if len(path) == 1 else path[-1])


def _instead(path: tuple[str, ...]) -> str:
    return {
        ("model",): "name one model; drop a second spec for the other",
        ("search", "workers"): "leave it out, or write 1",
        ("search", "strategy"): f"one of {', '.join(_STRATEGIES)}",
        ("evaluation", "split"): 'split = "random"',
        ("resources", "gpus"): "write 1",
    }.get(path, "leave it out")
