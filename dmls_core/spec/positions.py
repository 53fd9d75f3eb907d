"""Lines and columns of the keys of a TOML text, for error messages."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import tomli

TokenType = Literal["space", "string", "punctuation", "bare"]


class Token(NamedTuple):
    """The part ``start:end`` of the text.

    ``punctuation`` is one of ``[]{},=``, ``space`` is blanks, newlines and comments, and ``bare`` is the
    rest: bare keys with their dots, numbers, dates, words.
    """

    type: TokenType
    start: int
    end: int


# Possessive quantifiers: no backtracking, so the time is linear for any input.
_TOKEN = re.compile(
    r"""
    (?P<space> (?: [ \t\r\n]++ | \#[^\n]*+ )++ )
  | (?P<string>
        \"\"\" (?: [^"\\]++ | \\. | "(?!"") )*+ "{3,5}
      | ''' (?: [^']++ | '(?!'') )*+ '{3,5}
      | (?!\"\"\") " (?: [^"\\\n]++ | \\. )*+ "
      | (?!''') ' [^'\n]*+ '
    )
  | (?P<punctuation> [\[\]{},=] )
  | (?P<bare> [^\s\[\]{},=\#"']++ )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of ``text`` up to the first error, such as an open string."""
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        yield Token(match.lastgroup, match.start(), position)  # type: ignore[arg-type]


Path = tuple[str | int, ...]
"""Keys and list indices from the top of the document: ``("criterion", "values", 2)``."""


class Lines:
    """Converts offsets into lines and columns, both from 1."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        start = text.find("\n")
        while start >= 0:
            self._starts.append(start + 1)
            start = text.find("\n", start + 1)

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of ``offset``."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


class Positions:
    """Line and column of keys and list elements in a text that the parser has accepted.

    The first lookup scans the text: a spec without errors needs none.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self._text)

    @cached_property
    def _offsets(self) -> dict[Path, int]:
        walk = _Walk(self._text)
        walk.run()
        return walk.offsets

    def __contains__(self, path: Path) -> bool:
        return path in self._offsets

    def find(self, path: Path) -> tuple[int, int]:
        """Return line and column of ``path``, else of the nearest table above, or the start; never raise."""
        for length in range(len(path), 0, -1):
            offset = self._offsets.get(path[:length])
            if offset is not None:
                return self._lines.position(offset)
        return 1, 1


class _OutOfStepError(Exception):
    """The text differs from what the parser accepted: keep the positions up to there."""


@dataclass(slots=True)
class _Container:
    """An open array (``index`` counts its elements) or inline table (``index`` is ``None``)."""

    path: Path
    index: int | None


@dataclass(slots=True)
class _Walk:
    text: str
    offsets: dict[Path, int] = field(default_factory=dict)
    _arrays: dict[Path, int] = field(default_factory=dict)
    _table: Path = ()

    def run(self) -> None:
        stream = tokens(self.text)
        try:
            for token in stream:
                if token.type == "space":
                    continue
                if self._punctuation(token) == "[":
                    self._header(stream)
                else:
                    path, _ = self._key(token, stream, self._table, "=")
                    self._value(path, stream)
        except _OutOfStepError:
            return

    def _punctuation(self, token: Token) -> str:
        return self.text[token.start] if token.type == "punctuation" else ""

    def _next(self, stream: Iterator[Token]) -> Token:
        for token in stream:
            if token.type != "space":
                return token
        raise _OutOfStepError

    def _header(self, stream: Iterator[Token]) -> None:
        """Read ``[a.b]`` or ``[[a.b]]`` up to its end and make it the current table."""
        token = self._next(stream)
        array = self._punctuation(token) == "["
        if array:
            token = self._next(stream)
        path, start = self._key(token, stream, (), "]")
        if array:
            self._next(stream)
            index = self._arrays[path] = self._arrays.get(path, -1) + 1
            path = (*path, index)
            self.offsets.setdefault(path, start)
        self._table = path

    def _key(self, token: Token, stream: Iterator[Token], path: Path, end: str) -> tuple[Path, int]:
        """Read a dotted key up to the punctuation ``end``; return its path and the offset of its start."""
        start = token.start
        while self._punctuation(token) != end:
            for offset, part in self._parts(token):
                # A header below an array of tables means the array's last element.
                if path in self._arrays:
                    path = (*path, self._arrays[path])
                path = (*path, part)
                self.offsets.setdefault(path, offset)
            token = self._next(stream)
        return path, start

    def _parts(self, token: Token) -> Iterator[tuple[int, str]]:
        raw = self.text[token.start : token.end]
        if token.type == "bare":
            offset = token.start
            for part in raw.split("."):
                if part:
                    yield offset, part
                offset += len(part) + 1
        elif token.type == "string":
            yield token.start, _unquote(raw)
        else:
            raise _OutOfStepError

    def _value(self, path: Path, stream: Iterator[Token]) -> None:
        open_: list[_Container] = []
        while True:
            token = self._next(stream)
            punctuation = self._punctuation(token)
            if open_ and punctuation == ",":
                self._separate(open_[-1])
                continue
            if punctuation in ("]", "}"):
                if not open_:
                    raise _OutOfStepError
                open_.pop()
            elif open_ and open_[-1].index is None:
                path, _ = self._key(token, stream, open_[-1].path, "=")
                self._open(self._next(stream), path, open_)
            else:
                if open_:
                    path = (*open_[-1].path, open_[-1].index or 0)
                    self.offsets.setdefault(path, token.start)
                self._open(token, path, open_)
            if not open_:
                return

    def _separate(self, container: _Container) -> None:
        if container.index is not None:
            container.index += 1

    def _open(self, token: Token, path: Path, open_: list[_Container]) -> None:
        punctuation = self._punctuation(token)
        if punctuation == "[":
            open_.append(_Container(path, 0))
        elif punctuation == "{":
            open_.append(_Container(path, None))
        elif punctuation:
            raise _OutOfStepError


def _unquote(raw: str) -> str:
    if raw[0] == '"' and "\\" in raw:
        try:
            return str(tomli.loads(f"key = {raw}")["key"])
        except tomli.TOMLDecodeError:
            raise _OutOfStepError from None
    return raw[1:-1]
