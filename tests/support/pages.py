"""The pages of the documentation, their code blocks, and the names in their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]

PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
    ]
)

GENERATED = re.compile(r"<!-- Written by docs/\w+\.py from ")
"""In a page that a script writes from the code; ``--check`` of the script compares it."""

GENERATED_PART = re.compile(r"<!-- (\w+): written by docs/\w+\.py -->.*?<!-- end of \1 -->", re.DOTALL)

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)

COMMENT = re.compile(r"<!-- (check|given|run by|message of): ?((?:(?!-->).)*?)\s*-->\n+ *\Z", re.DOTALL)
"""Directly above a block: what its language does not say."""


@dataclass(frozen=True)
class Block:
    """A fenced code block.

    Attributes:
        page: path relative to the repository.
        line: of the opening fence.
        language: the first word behind the fence.
        title: the name of the file that it shows, if it has one.
        text: its content.
        comments: those above it, by ``check``, ``given``, ``run by`` and ``message of``.
    """

    page: str
    line: int
    language: str
    title: str
    text: str
    comments: dict[str, str]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    """Yield the code blocks of all pages that are written by hand."""
    for page in PAGES:
        text = page.read_text()
        if GENERATED.search(text):
            continue
        text = GENERATED_PART.sub(lambda part: "\n" * part[0].count("\n"), text)
        for match in FENCE.finditer(text):
            head, comments = text[: match.start()], {}
            while comment := COMMENT.search(head):
                comments[comment[1]] = comment[2]
                head = head[: comment.start()]
            title = re.search(r'title="([^"]+)"', match["options"])
            yield Block(
                page=str(page.relative_to(ROOT)),
                line=text.count("\n", 0, match.start()) + 1,
                language=match["language"],
                title=title[1] if title else "",
                text=dedent(match["text"]),
                comments=comments,
            )


def prose(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return FENCE.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    """Return what stands in backticks in the text of a page."""
    return re.findall(r"`([^`\n]+)`", prose(page))
