"""TOML's tokens, found in linear time: enough to measure a file before parsing it and to place its keys.

The parser proper gives no positions and recurses over what it reads. These tokens serve to refuse what
would hurt it beforehand, and to tell afterwards where each key stood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

TokenKind = Literal["space", "string", "mark", "bare"]


class Token(NamedTuple):
    """A stretch ``start:end`` of the text.

    A ``mark`` is one of ``[]{},=``; ``space`` is blanks, newlines and comments; ``bare`` is anything
    else: bare keys with their dots, numbers, dates, words.
    """

    kind: TokenKind
    start: int
    end: int


# Possessive quantifiers: nothing is ever tried twice, so that no input is slower than linear.
_TOKEN = re.compile(
    r"""
    (?P<space> (?: [ \t\r\n]++ | \#[^\n]*+ )++ )
  | (?P<string>
        \"\"\" (?: [^"\\]++ | \\. | "(?!"") )*+ "{3,5}
      | ''' (?: [^']++ | '(?!'') )*+ '{3,5}
      | (?!\"\"\") " (?: [^"\\\n]++ | \\. )*+ "
      | (?!''') ' [^'\n]*+ '
    )
  | (?P<mark> [\[\]{},=] )
  | (?P<bare> [^\s\[\]{},=\#"']++ )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of ``text`` up to the first thing that cannot be TOML, such as an open string.

    The parser stops there too, or before.
    """
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        yield Token(match.lastgroup, match.start(), position)  # type: ignore[arg-type]
