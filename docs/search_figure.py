"""The figure of the searches in docs/explanation/search.md: ``python -m docs.search_figure FILE.json ...``.

The files are what ``python tests/bench/search.py --json FILE`` wrote, for one or several data sets each.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUT = Path(__file__).parent / "images" / "search.png"

METHODS = {
    "ours": ("DMLS", "#0b5fa5"),
    "one fit": ("one fit of its forest", "#9db4c6"),
    "halving": ("successive halving", "#b9b9b9"),
    "randomized": ("random search", "#b9b9b9"),
    "plain": ("plain Optuna", "#b9b9b9"),
}
"""Methods that search the same space, in the order of the bars: label and color."""

TITLES = {"multiclass": "7 classes, 20,000 x 54", "noisy": "regression, 20,000 x 30"}

COLUMNS = 3


def main() -> None:
    """Draw one panel for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="figures of tests/bench/search.py")
    parser.add_argument("--out", type=Path, default=OUT, help="the picture")
    arguments = parser.parse_args()
    rows = [row for file in arguments.files for row in json.loads(file.read_text())]
    draw(rows, arguments.out)


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """Draw rows of the benchmark into a picture."""
    from matplotlib.figure import Figure

    data = list(dict.fromkeys(row["data"] for row in rows))
    lines = -(-len(data) // COLUMNS)
    figure = Figure(figsize=(11, 2.3 * lines + 0.6), layout="constrained")
    panels = figure.subplots(lines, COLUMNS, squeeze=False).ravel()
    for panel, name in zip(panels, data, strict=False):
        _panel(panel, name, {row["method"]: row for row in rows if row["data"] == name})
    for panel in panels[len(data) :]:
        panel.set_axis_off()
    figure.suptitle("CPU seconds of 30 trials (logarithmic), and the score on held-out rows", fontsize=11)
    figure.savefig(out, dpi=110)


def _panel(panel: Axes, name: str, found: dict[str, dict[str, Any]]) -> None:
    there = [method for method in METHODS if method in found]
    seconds = [found[method]["CPU s"] for method in there]
    least = min(seconds) / 3
    places = range(len(there))
    panel.barh(
        places,
        [one - least for one in seconds],
        left=least,
        color=[METHODS[method][1] for method in there],
        height=0.7,
    )
    for place, method in zip(places, there, strict=True):
        row = found[method]
        ratio = "" if method == "ours" else f" ({_short(row['CPU/ours'])}x)"
        text = f" {_short(row['CPU s'])} s{ratio}, {float(row['holdout']):.3f}"
        panel.text(row["CPU s"], place, text, va="center", fontsize=8)
    panel.set_xscale("log")
    panel.set_xlim(least, max(seconds) * (max(seconds) / least) ** 0.75)
    panel.set_yticks(places, [METHODS[method][0] for method in there], fontsize=8)
    panel.set_xticks([])
    panel.minorticks_off()
    panel.invert_yaxis()
    panel.spines[["top", "right", "bottom"]].set_visible(False)
    panel.tick_params(length=0)
    panel.set_title(TITLES.get(name, name.replace("_", " ")), loc="left", fontsize=10, fontweight="bold")


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


if __name__ == "__main__":
    main()
