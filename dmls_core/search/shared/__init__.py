"""One search by several trainers: they share a study over a database."""

from __future__ import annotations

from dmls_core.search.shared.database import StudyDatabase
from dmls_core.search.shared.searcher import Member, SharedSearch
from dmls_core.search.shared.study import SharedStudy, remove_studies

__all__ = ["Member", "SharedSearch", "SharedStudy", "StudyDatabase", "remove_studies"]
