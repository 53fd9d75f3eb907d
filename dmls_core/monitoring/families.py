"""Metric families as Prometheus reads them (text exposition format 0.0.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HEADER = re.compile(r"# (HELP|TYPE) (\S+) ?(.*)")


@dataclass(slots=True)
class Family:
    """A metric with its samples.

    Attributes:
        name: of the metric.
        kind: ``counter``, ``gauge`` or ``summary``.
        text: what it is.
        samples: lines as they are exposed.
    """

    name: str
    kind: str
    text: str
    samples: list[str] = field(default_factory=list)

    def add(self, value: float, labels: Mapping[str, str], ending: str = "") -> Family:
        """Add a sample; ``ending`` is what a summary's parts add to the name. Return the family."""
        named = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        self.samples.append(f"{self.name}{ending}{{{named}}} {value:.15g}")
        return self


def escaped(text: str) -> str:
    """Return a label's value as the format wants it; lone surrogates, which UTF-8 cannot hold, replaced."""
    text = re.sub(r"[\ud800-\udfff]", "\ufffd", text)
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def read_families(text: str) -> Iterator[Family]:
    """Yield the families of an exposition that DMLS wrote: header lines before the samples."""
    family: Family | None = None
    for line in text.splitlines():
        if header := _HEADER.fullmatch(line):
            what, name, rest = header.groups()
            if what == "HELP":
                if family:
                    yield family
                family = Family(name, "untyped", rest)
            elif family:
                family.kind = rest
        elif family and line:
            family.samples.append(line)
    if family:
        yield family


def exposition_text(families: Iterable[Family]) -> str:
    """Return families as text, those of one name put together as the format demands."""
    merged: dict[str, Family] = {}
    for family in families:
        known = merged.setdefault(family.name, Family(family.name, family.kind, family.text))
        known.samples.extend(family.samples)
    lines = []
    for name, family in sorted(merged.items()):
        lines += [f"# HELP {name} {family.text}", f"# TYPE {name} {family.kind}", *family.samples]
    return "".join(f"{line}\n" for line in lines)
