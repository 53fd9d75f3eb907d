"""Several models in one search: trials go where they pay."""

from __future__ import annotations

from dmls_core.search.competition.compete import compete
from dmls_core.search.competition.outcome import pick_winner
from dmls_core.search.competition.rungs import Entry, Turn, next_turn

__all__ = ["Entry", "Turn", "compete", "next_turn", "pick_winner"]
