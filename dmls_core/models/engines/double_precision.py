"""Treelite models in double precision: XGBoost's trees in the form of LightGBM's, to be joined with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import treelite

_DOUBLE = "float64"

_TREE = (
    *("num_nodes", "has_categorical_split", "node_type", "cleft", "cright", "split_index", "default_left"),
    *("leaf_value", "threshold", "cmp", "category_list_right_child", "leaf_vector", "leaf_vector_begin"),
    *("leaf_vector_end", "category_list", "category_list_begin", "category_list_end"),
)

_STATISTICS = ("data_count", "data_count_present", "sum_hess", "sum_hess_present", "gain", "gain_present")

_HEADER = (
    *("task_type", "average_tree_output", "leaf_vector_shape", "target_id", "class_id", "postprocessor"),
    *("sigmoid_alpha", "ratio_c", "base_scores"),
)


def as_double(model: treelite.Model) -> treelite.Model:
    """Return a model in double precision, with the same tests and leaves, without statistics of the nodes.

    Every single-precision number is one of double precision, so the answers differ only in how sums of leaves
    are rounded.
    """
    import numpy as np

    if model.input_type == _DOUBLE:
        return model
    converted = _empty(model)
    # A field that is set has the memory of the array, which Treelite's Python package never releases. Arrays
    # of fields are views of a model's memory, so they are copied.
    header, new_header = model.get_header_accessor(), converted.get_header_accessor()
    for name in _HEADER:
        value = header.get_field(name)
        new_header.set_field(name, value if isinstance(value, str) else value.copy())
    for number in range(model.num_tree):
        tree, new = model.get_tree_accessor(number), converted.get_tree_accessor(number)
        for name in _TREE:
            values = tree.get_field(name)
            new.set_field(name, values.astype(np.float64 if values.dtype == np.float32 else values.dtype))
        for name in _STATISTICS:
            new.set_field(name, tree.get_field(name)[:0].copy())
    return converted


def _empty(model: treelite.Model) -> treelite.Model:
    """Return a model in double precision of the same shape, whose trees are leaves."""
    import treelite.model_builder as tl

    header = model.get_header_accessor()
    targets = int(header.get_field("num_target")[0])
    classes = [int(number) for number in header.get_field("num_class")]
    builder: Any = tl.ModelBuilder(
        threshold_type=_DOUBLE,
        leaf_output_type=_DOUBLE,
        metadata=tl.Metadata(
            num_feature=model.num_feature,
            task_type="kRegressor",
            average_tree_output=False,
            num_target=targets,
            num_class=classes,
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=tl.TreeAnnotation(
            num_tree=model.num_tree, target_id=[0] * model.num_tree, class_id=[0] * model.num_tree
        ),
        postprocessor=tl.PostProcessorFunc("identity"),
        base_scores=[0.0] * (targets * max(classes)),
    )
    for _ in range(model.num_tree):
        builder.start_tree()
        builder.start_node(0)
        builder.leaf(0.0)
        builder.end_node()
        builder.end_tree()
    empty: treelite.Model = builder.commit()
    return empty
