"""Write docs/reference/spec.md: every table, key, model, hyperparameter and metric of a spec.

The code that validates specs supplies them. ``--check`` only reports whether the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dmls_core.models import CATALOGUE, METRICS, engine_class
from dmls_core.models.load import UNAVAILABLE
from dmls_core.spec import HyperparameterDefinition, ModelDefinition
from dmls_core.spec.rules import DEFAULT_TRIALS
from dmls_core.spec.tables import TABLES

PAGE = Path(__file__).parent / "reference" / "spec.md"

HEAD = """# The spec

<!-- Written by docs/spec_reference.py from the code: change that, then run `make docs`. -->

A spec is a TOML file called `spec.toml`. This is a complete one:

```toml
{example}```

A spec requires `model`, and `target` in `[columns]`. `model` is one of the [models](#models) below, or a list
of models that compete; `"auto-classifier"` and `"auto-regressor"` are DMLS's [choice](../explanation/search.md#several-models)
of models. `n_trials` is the number of trials: {trials} by default, or fewer if the search space is
smaller.

Any other table is a hyperparameter of the model. It defines the search space:

| key | values |
| --- | --- |
| `min`, `max` | numbers between them, both included; integers stay integers |
| `step` (optional) | only `min`, `min + step`, `min + 2 step`, … |
| `log = true` (optional) | sampled on a log scale |
| `values = [...]` | one of the list |
| `value = ...` | a fixed value |

Hyperparameters that the spec does not name keep the library's default, which the tables below show. A spec
without hyperparameters searches those marked *searched by default*. A word in quotes, such as `"none"`, stands
for Python's `None` or for a mode of the library.

`dmls validate spec.toml data.csv` runs the checks of admission offline. `dmls schema` prints the JSON schema for
editors. What is marked *not available yet* is checked, then rejected.
"""


def page() -> str:
    """Return the whole page."""
    example = (PAGE.parents[2] / "examples/iris/spec.toml").read_text()
    parts = [HEAD.format(example=example, trials=DEFAULT_TRIALS), "## Tables\n", *map(_table, TABLES)]
    parts += ["### `[tags]`\n", "Your own names and values, both text; MLflow shows them.\n"]
    parts += ["## Metrics\n", *_metrics(), "## Models\n", *_models()]
    return "\n".join(parts).rstrip() + "\n"


def _table(name: str) -> str:
    schema = TABLES[name].model_json_schema()
    needed = " (required)" if name == "columns" else ""
    rows = [
        (f"`{key}`", _kind(field, schema), _default(field, key in schema.get("required", ())), _text(field))
        for key, field in schema["properties"].items()
    ]
    missing = ", ".join(setting.name for setting in UNAVAILABLE if setting.table == name)
    later = f"\nNot available yet: {missing}.\n" if missing else ""
    extra = ""
    if name == "expectations":
        column = schema["$defs"]["ColumnExpectation"]
        extra = "\nExpectations of a column, in a table `[expectations.columns.NAME]`:\n\n" + _keys(
            column, schema
        )
    if name == "data":
        source = schema["$defs"]["Source"]
        extra = (
            "\nThe keys of `[data.source]`, one of `table`, `query`, `path`, `delta` and `iceberg` "
            "([how to](../how-to/read-a-source.md)):\n\n" + _keys(source, schema)
        )
        extra += "\nThe numbers of a column, in a table `[data.numbers.NAME]`:\n\n" + _keys(
            schema["$defs"]["NumberNotation"], schema
        )
    if name == "search":
        stop = schema["$defs"]["EarlyStop"]
        extra = (
            "\nThe rules of `[search.early_stop]`; the search stops as soon as one of them holds:\n\n"
            + _keys(stop, schema)
        )
    intro = (schema.get("description") or "").split("\n\n")[0].replace("\n", " ")
    return f"### `[{name}]`{needed}\n\n{intro}\n\n{_grid(rows)}{extra}{later}"


def _keys(table: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Describe the keys of a table within a table."""
    return _grid(
        (f"`{key}`", _kind(field, schema), _default(field, False), _text(field))
        for key, field in table["properties"].items()
    )


def _grid(
    rows: Iterable[tuple[str, ...]], heads: tuple[str, ...] = ("key", "type", "default", "meaning")
) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _text(field: Mapping[str, Any]) -> str:
    examples = ", ".join(f"`{example}`" for example in field.get("examples", ()))
    return field.get("description", "") + (f" For example {examples}." if examples else "")


def _default(field: Mapping[str, Any], required: bool) -> str:
    if required:
        return "required"
    value = field.get("default")
    return (
        "" if value in (None, "", [], {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


def _kind(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Describe the JSON schema of a value."""
    if "anyOf" in field:
        kinds = [_kind(one, schema) for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in field:
        return "table"
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    kind = {
        "string": "text",
        "integer": "integer",
        "number": "number",
        "boolean": "`true`, `false`",
        "array": "list",
        "object": "table",
    }.get(str(field.get("type")), "text")
    return ", ".join(filter(None, [kind, _bounds(field)]))


def _bounds(field: Mapping[str, Any]) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    # Only integers have one, such as `seed`: the largest value is one less.
    if (end := field.get("exclusiveMaximum")) is not None:
        high = end - 1
    if (above := field.get("exclusiveMinimum")) is not None:
        return f"above {_bound(above)}" + (f" to {_bound(high)}" if high is not None else "")
    if low is None:
        return ""
    return f"{_bound(low)} to {_bound(high)}" if high is not None else f"{_bound(low)} or more"


def _metrics() -> list[str]:
    rows = [
        (
            f"`{metric.name}`",
            metric.task,
            "higher" if metric.direction == "maximize" else "lower",
            metric.description,
        )
        for metric in METRICS.values()
    ]
    defaults = ", ".join(
        sorted({f"`{model.default_metric}` for a {model.task}" for model in CATALOGUE.values()})
    )
    names = "scikit-learn's scoring names, such as `neg_log_loss`, are accepted too"
    return [f"By default {defaults}; {names}.\n", _grid(rows, ("metric", "task", "better", "meaning"))]


def _models() -> list[str]:
    rows = [
        (
            f"[`{model.name}`](#{model.name})",
            model.description,
            ", ".join(model.engines),
            "supported" if model.missing_values else "replaced by the median",
        )
        for model in CATALOGUE.values()
    ]
    summary = _grid(rows, ("model", "meaning", "engines", "missing numbers"))
    return [summary, *(_model(model) for model in CATALOGUE.values())]


def _model(model: ModelDefinition) -> str:
    rows = [
        (f"`{name}`", _legal(one), f"`{_toml(one.default)}`", _remarks(one, model))
        for name, one in model.hyperparameters.items()
    ]
    return f"### {model.name}\n\n{model.description}\n\n{_grid(rows)}"


def _legal(one: HyperparameterDefinition) -> str:
    """Describe the legal values of a hyperparameter."""
    words = [f'`"{choice}"`' for choice in one.choices]
    numbers = {
        "int": f"integer {_bound(one.low)} to {_bound(one.high)}",
        "float": f"number {'above ' if one.low_open else ''}{_bound(one.low)} to {_bound(one.high)}",
        "count": f"integer {_bound(one.low)} to {_bound(one.high)}, or share above 0 to {one.share_high:g}",
        "bool": "`true`, `false`",
    }.get(one.kind)
    return " or ".join(filter(None, [numbers, ", ".join(words)]))


def _bound(value: float | None) -> str:
    if value is None:
        return "any"
    return f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e12 else f"{value:g}"


def _remarks(one: HyperparameterDefinition, model: ModelDefinition) -> str:
    parts = [one.description]
    if one.name in model.search:
        table = model.search[one.name]
        space = ", ".join(f"{key} = {_toml(value)}" for key, value in table.items())
        parts.append(f"*{'In the default space' if 'value' in table else 'Searched by default'}: {space}.*")
    if "gpu" in model.engines:
        argument = engine_class("gpu", model.name).arguments.get(one.name)
        if argument and argument.unsupported:
            parts.append(f"*Not on GPUs: {argument.unsupported}.*")
    return " ".join(parts)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f"{value}"


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == text else f"{PAGE} is out of date: run `make docs`")
    PAGE.write_text(text)
