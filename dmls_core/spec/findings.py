"""Collects everything that is wrong with a spec, each with its place, and reports it in file order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.settings import SpecLimits
from dmls_core.spec.positions import Path, Positions
from dmls_core.spec.words import closest, describe, dotted

_NOTHING: Final = object()
_COMPARISONS = 5_000
"""Names compared for suggestions in one report; each costs some 10 microseconds."""


@dataclass(frozen=True, slots=True)
class _Finding:
    path: Path
    message: str
    found: str
    expected: str
    hint: str
    word: str
    names: tuple[str, ...]


class Findings:
    """What was found wrong so far."""

    def __init__(self, file: str, positions: Positions | None, limits: SpecLimits) -> None:
        self._file = file
        self._positions = positions
        self._most = limits.issues
        # Keyed, since two models can find the same fault in a table that they share.
        self._findings: dict[tuple[Path, str], _Finding] = {}

    def add(
        self,
        path: Path,
        message: str,
        *,
        found: object = _NOTHING,
        expected: str = "",
        hint: str = "",
        word: object = "",
        names: Iterable[str] = (),
    ) -> None:
        """Note an issue.

        Args:
            path: the key that is wrong; one that is missing stands where its table does.
            message: what is wrong, to be read after the key.
            found: the value that was found.
            expected: what would be right.
            hint: how to mend it.
            word: a name that is unknown, for which a similar one is suggested out of ``names``.
            names: the names that would be right.
        """
        self._findings[path, message] = _Finding(
            path,
            message,
            "" if found is _NOTHING else describe(found),
            expected,
            hint,
            word if isinstance(word, str) else "",
            tuple(names),
        )

    def __len__(self) -> int:
        return len(self._findings)

    def standing(self, *paths: Path) -> Path:
        """Return the first of ``paths`` that stands in the file; the last, if none does."""
        if self._positions is None:
            return paths[-1]
        return next((path for path in paths if path in self._positions), paths[-1])

    def raise_any(self) -> None:
        """Report what was found, if anything.

        Raises:
            SpecError: with an issue for each finding in file order, up to the limit.
        """
        if not self._findings:
            return
        placed = [(self._place(finding), finding) for finding in self._findings.values()]
        placed.sort(key=lambda pair: pair[0])
        issues: list[ValidationIssue] = []
        compared = 0
        for place, finding in placed[: self._most]:
            # Only now, for the few that are shown: matching is the costly part.
            compared += len(finding.names)
            issues.append(self._issue(place, finding, suggest=compared <= _COMPARISONS))
        if rest := len(placed) - len(issues):
            issues.append(ValidationIssue(f"and {rest:,} more issues", file=self._file))
        raise SpecError(issues)

    def _place(self, finding: _Finding) -> tuple[int, int]:
        return self._positions.find(finding.path) if self._positions else (0, 0)

    def _issue(self, place: tuple[int, int], finding: _Finding, suggest: bool) -> ValidationIssue:
        hint = finding.hint
        if suggest and finding.word and (name := closest(finding.word, finding.names)):
            hint = f"did you mean {name}?"
        return ValidationIssue(
            finding.message,
            hint,
            file=self._file,
            line=place[0] or None,
            column=place[1] or None,
            key=dotted(finding.path),
            found=finding.found,
            expected=finding.expected,
        )
