"""Schema inference proposes dates as features, in the order in which all can be read."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_core.intake.schema_inference import infer_schema, read_sample
from dmls_core.models import load_spec
from dmls_core.spec.toml_io import toml_text


@pytest.mark.parametrize(
    ("dates", "roles"),
    [
        (["2024-01-31", "2024-02-01 10:00"], {"dates": ["at"]}),
        (["1/2/2024", "31/1/2024"], {"dates": ["at"], "date_order": "day-first"}),
        (["1/31/2024 2:05 PM", "2/1/2024 3:00 AM"], {"dates": ["at"], "date_order": "month-first"}),
        (["1/2/2024", "2/1/2024"], {"dates": ["at"], "date_order": "month-first"}),
        (["1.2.2024", "2.1.2024"], {"dates": ["at"], "date_order": "day-first"}),
        (["1/31/2024", "31/1/2024"], {}),
        (["2024-01-31", "2024-02-30"], {}),
    ],
)
def test_the_order_of_dates(dates: list[str], roles: dict[str, Any]) -> None:
    rows = "".join(f"{row / 7:.3f},{dates[row % 2]},{'ab'[row % 2]}\n" for row in range(60))
    found = infer_schema("a.csv", read_sample("a.csv", f"size,at,kind\n{rows}".encode(), complete=True))

    assert found.columns[1].kind == "date"
    columns = found.document["columns"]
    assert {key: columns[key] for key in ("dates", "date_order") if key in columns} == roles
    assert ("at" in columns["features"]) == bool(roles)
    assert load_spec(toml_text(found.document).encode()).columns.dates == tuple(roles.get("dates", ()))


def test_where_a_slash_may_be_both_a_decimal_comma_decides() -> None:
    text = "size;at;kind\n" + "".join(f"{row},5;1/2/2024;{row % 2}\n" for row in range(60))
    found = infer_schema("a.csv", read_sample("a.csv", text.replace("1/2", "2/1", 9).encode(), complete=True))

    assert found.document["columns"]["date_order"] == "day-first"
