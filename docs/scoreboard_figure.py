"""The figure in docs/explanation/scoreboard.md: ``python -m docs.scoreboard_figure FILE.json``.

The file is what ``python tests/bench/scoreboard.py --json FILE`` wrote.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "images" / "scoreboard.svg"

OURS, OTHER = "#0b5fa5", "#8a8a8a"


def main() -> None:
    """Draw the methods of a scoreboard."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="figures of tests/bench/scoreboard.py")
    parser.add_argument("--out", type=Path, default=OUT, help="the picture")
    arguments = parser.parse_args()
    draw(json.loads(arguments.file.read_text())["methods"], arguments.out)


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """Draw mean ranks with their intervals, and the time of one row against the rank."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text, and the file is the same each time.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "scoreboard"}
    figure = Figure(figsize=(10, 0.34 * len(rows) + 1.2), layout="constrained")
    ranks, times = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    for place, row in enumerate(reversed(rows)):
        mean, low, high = map(float, re.findall(r"[\d.]+", row["mean rank"]))
        color = OURS if row["method"].startswith("DMLS") else OTHER
        ranks.plot([low, high], [place, place], color=color, linewidth=2)
        ranks.plot(mean, place, "o", color=color)
        times.barh(place, float(row["one row, ms"]), color=color, height=0.6)
        times.text(float(row["one row, ms"]) * 1.15, place, row["one row, ms"], va="center", fontsize=8)
    ranks.set_yticks(range(len(rows)), [row["method"] for row in reversed(rows)])
    ranks.set_xlabel("mean rank of the error (less is better), with 90 % interval")
    times.set_xscale("log")
    times.margins(x=0.25)
    times.set_xlabel("milliseconds for one row (logarithmic)")
    for panel in (ranks, times):
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, metadata={"Date": None})
    # Matplotlib ends lines with spaces.
    out.write_text("".join(f"{line.rstrip()}\n" for line in out.read_text().splitlines()))


if __name__ == "__main__":
    main()
