"""Things to drop."""

from __future__ import annotations

from dmls_core.store import Store

SPEC = b"""\
model = "random-forest-classifier"
n_trials = 5

[columns]
features = ["sepal_length", "petal_width"]
target = "species"

[n_estimators]
min = 50
max = 500
"""

CSV = b"sepal_length,petal_width,species\n" + b"5.1,0.2,setosa\n7.0,1.4,versicolor\n" * 5

REGRESSION = SPEC.replace(b"classifier", b"regressor")


def drop(store: Store, files: dict[str, bytes], team: str = "growth", job: str = "iris") -> None:
    for name, content in files.items():
        store.put(f"incoming/{team}/{job}/{name}", content)
