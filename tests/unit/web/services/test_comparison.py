"""What differs between versions."""

from __future__ import annotations

from dmls_core.web.services.comparison import Difference, differences, flatten


def test_tables_in_a_list_are_compared_by_name():
    before = {"models": [{"name": "forest", "depth": {"max": 4}}], "n": 5, "tags": ["a"]}
    after = {"models": [{"name": "boost", "rate": 1}, {"name": "forest", "depth": {"max": 8}}], "n": 5}
    assert flatten(before) == {"models.forest.depth.max": 4, "n": 5, "tags": ["a"]}
    assert differences(before, after) == [
        Difference("models.boost.rate", (None, 1)),
        Difference("models.forest.depth.max", (4, 8)),
        Difference("tags", (["a"], None)),
    ]
