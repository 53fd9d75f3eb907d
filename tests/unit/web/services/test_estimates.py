"""The cost of an estimated run; the estimate itself is tested with the page."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dmls_core.airflow.settings import AirflowSettings
from dmls_core.web.services.estimates import cost


@pytest.mark.parametrize(
    ("seconds", "price", "expected"),
    [
        (5_400, "0.40 EUR", "0.60 EUR"),
        (3_600_000, "1.5 USD", "1,500.00 USD"),
        (4, "0.40 EUR", "less than 0.01 EUR"),
        (60, "0 EUR", "0.00 EUR"),
        (60, "", ""),
    ],
)
def test_cost(seconds: float, price: str, expected: str) -> None:
    assert cost(seconds, AirflowSettings(root="/tmp/store", hourly_price=price).hourly_price) == expected


@pytest.mark.parametrize("price", ["0.40", "EUR 0.40", "-1 EUR", "0.40 euro"])
def test_a_price_without_a_currency_is_refused(price: str) -> None:
    with pytest.raises(ValidationError, match="hourly_price"):
        AirflowSettings(root="/tmp/store", hourly_price=price)


def test_prices_have_one_currency() -> None:
    with pytest.raises(ValidationError, match="must be in the currency of hourly_price, EUR"):
        AirflowSettings(root="/tmp/store", hourly_price="0.40 EUR", gpu_hourly_price="2.50 USD")
