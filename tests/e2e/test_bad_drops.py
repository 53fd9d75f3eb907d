"""Bad drops, each with its own clear answer."""

from __future__ import annotations

import pytest

from tests.e2e import data
from tests.services.platform_client import PlatformClient

IRIS = data.iris()
GOOD = data.SMALL_IRIS + '[deploy]\nmode = "never"\n'


def with_lines(text: str, *lines: tuple[int, str]) -> str:
    """Replace lines (counted from 0) of a CSV."""
    rows = text.splitlines()
    for number, line in lines:
        rows[number] = line
    return "\n".join(rows) + "\n"


# name -> spec, data, final state, words that the answer must hold
BAD: dict[str, tuple[bytes | str | None, bytes | str | None, str, tuple[str, ...]]] = {
    "no-target": (
        GOOD.replace('target = "species"', 'target = "specie"'),
        IRIS,
        "rejected",
        ("specie", "species"),
    ),
    "one-class": (
        GOOD,
        IRIS.replace("versicolor", "setosa").replace("virginica", "setosa"),
        "rejected",
        ("setosa",),
    ),
    "unknown-model": (
        GOOD.replace("random-forest-classifier", "random-forest-clasifier"),
        IRIS,
        "rejected",
        ("random-forest-clasifier", "random-forest-classifier", "spec.toml"),
    ),
    "unknown-hyperparameter": (
        GOOD.replace("[n_estimators]", "[n_estimatos]"),
        IRIS,
        "rejected",
        ("n_estimatos", "n_estimators"),
    ),
    "min-above-max": (GOOD.replace("min = 50", "min = 600"), IRIS, "rejected", ("600", "60", "min")),
    "empty-csv": (GOOD, "", "rejected", ("empty",)),
    "ragged-csv": (GOOD, with_lines(IRIS, (7, "5.1,3.5,1.4,0.2,setosa,extra")), "rejected", ("8",)),
    "binary": (GOOD, bytes(range(256)) * 40, "rejected", ("data.csv",)),
    "not-utf8": (GOOD, IRIS.replace("setosa", "séтosa").encode("utf-16"), "rejected", ("UTF-8",)),
    "bomb": ("x = " + "[" * 100_000, IRIS, "rejected", ("nest",)),
    "csv-alone": (None, IRIS, "waiting", ("spec.toml",)),
}


def drop_ahead(platform: PlatformClient) -> None:
    for name, (spec, table, *_) in BAD.items():
        platform.drop("school", name, spec, table)


@pytest.mark.parametrize("name", BAD)
def test_each_bad_drop_gets_its_answer(platform: PlatformClient, name: str):
    _, _, state, words = BAD[name]

    status = platform.wait_status("school", name, state)

    page = platform.get(f"incoming/school/{name}/_status.md").decode()
    missing = [word for word in words if word.casefold() not in page.casefold()]
    assert not missing, page
    if state == "rejected":
        assert status["errors"], status
        assert all(error["message"] for error in status["errors"])
    assert not platform.dag_exists(f"dmls.school.{name}")


@pytest.mark.parametrize("folder", ["..%2Fescape", "UPPER case"])
def test_a_trick_in_a_name_is_answered_where_it_was_dropped(platform: PlatformClient, folder: str):
    platform.put(f"incoming/school/{folder}/spec.toml", GOOD)
    platform.wait_status("school", folder, "rejected")

    page = platform.get(f"incoming/school/{folder}/_status.md").decode()
    assert "a-z" in page
    assert not [key for key in platform.keys("registry/") if "escape" in key]
