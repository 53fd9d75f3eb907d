"""Which rows a run holds out, as ``data.split`` of ``result.json`` and in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dmls_core.spec import Spec


def split_settings(spec: Spec, since: datetime | None = None) -> dict[str, Any]:
    """Return ``data.split`` of ``result.json``: the settings that decide which rows are held out."""
    evaluation = spec.evaluation
    description: dict[str, Any] = {
        "holdout": evaluation.holdout,
        "split": evaluation.split,
        "seed": spec.search.seed,
    }
    if evaluation.group_duplicates:
        description["group_duplicates"] = True
    if spec.columns.group:
        description["group"] = spec.columns.group
    if evaluation.split == "time":
        description["time"] = spec.columns.time
        if since is not None:
            description["since"] = since.isoformat()
    if spec.columns.weight:
        description["weight"] = spec.columns.weight
    return description


def describe_split(split: Mapping[str, Any]) -> str:
    """Return ``data.split`` of ``result.json``, or of a spec, as a text for people."""
    share = f"{split['holdout']:.0%}"
    if split["split"] == "time":
        text = f"the latest {share} by {split['time']}"
        if "since" in split:
            text += f", from {split['since'][:16].replace('T', ' ')} UTC on"
    else:
        text = f"{share}, {split['split']}"
    if "group" in split:
        text += f", groups of {split['group']} not divided"
    if split.get("group_duplicates"):
        text += ", rows with the same features on one side"
    return text + (f"; weighted by {split['weight']}" if "weight" in split else "")
