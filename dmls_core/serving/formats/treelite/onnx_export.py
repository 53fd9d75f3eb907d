"""Convert a Treelite checkpoint to ONNX, and check it on the golden rows in ONNX Runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import treelite
from numpy.typing import NDArray

from dmls_core.errors import PlatformError, ServingError
from dmls_core.serving.formats.tolerance import rows_that_differ
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.formats.treelite.gtil import CHECKPOINT_FILE, is_classifier

if TYPE_CHECKING:
    import onnx

INPUT, OUTPUT = "input__0", "output__0"
"""Names of the tensors, as in Triton: the encoded features, and probabilities or values; both float32."""

_OPSETS = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION = 8
"""ONNX Runtime 1.14 (2023) and later read this combination."""

MAX_NODES = 20_000_000
"""An ONNX file is one protobuf message of at most 2 GiB; a node takes up to 60 bytes."""

_MODES = {checkpoint.LESS: b"BRANCH_LT", checkpoint.LESS_OR_EQUAL: b"BRANCH_LEQ", 0: b"LEAF"}


def write_onnx(folder: Path, path: Path, metadata: Mapping[str, str]) -> float:
    """Write a run's or a version's ``model/`` folder as one ONNX file.

    ONNX Runtime then predicts the golden rows with it.

    Args:
        folder: holds ``checkpoint.tl`` and ``golden.json``.
        path: the file to write.
        metadata: properties of the file that ONNX Runtime returns as text.

    Returns:
        The largest difference from the golden rows' recorded predictions.

    Raises:
        PlatformError: the packages onnx and onnxruntime are not installed.
        ServingError: ONNX cannot express the model, or ONNX Runtime predicts something else with it.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise PlatformError(
            f"the ONNX export needs the package {error.name}: pip install 'dmls[onnx]'"
        ) from error
    model = checkpoint.load(folder / CHECKPOINT_FILE)
    classifier = is_classifier(model)
    onnx.save(to_onnx(model, metadata), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    golden = json.loads((folder / "golden.json").read_text("utf-8"))
    expected = np.asarray(golden["expected"], dtype=np.float32)
    (got,) = session.run([OUTPUT], {INPUT: np.asarray(golden["encoded"], dtype=np.float32)})
    expected = expected.reshape(got.shape)
    tolerance = golden.get("tolerance")
    bad = rows_that_differ(expected, got, classification=classifier, tolerance=tolerance, ties=True)
    if len(bad):
        row = int(bad[0])
        raise ServingError(
            f"ONNX Runtime differs from the checkpoint in {len(bad)} of {len(expected)} golden rows; "
            f"row {row}: expected {expected[row].tolist()}, got {got[row].tolist()}"
        )
    return float(np.abs(got - expected).max(initial=0))


def to_onnx(model: treelite.Model, metadata: Mapping[str, str]) -> onnx.ModelProto:
    """Return a Treelite model as ONNX: one ``TreeEnsembleRegressor``, then what turns sums into predictions.

    The number of rows is free. Two classes have two probabilities, as in Triton.

    Raises:
        ServingError: ONNX cannot express the model; the message says why.
    """
    from onnx import TensorProto, helper

    header = model.get_header_accessor()
    n_outputs = int(header.get_field("num_class")[0])
    trees = [model.get_tree_accessor(number) for number in range(model.num_tree)]
    classes, base = (np.asarray(header.get_field(name)) for name in ("class_id", "base_scores"))
    ensemble = _tree_attributes(trees, classes, n_outputs)
    graph = _Graph()
    sums = graph.add("TreeEnsembleRegressor", INPUT, domain="ai.onnx.ml", n_targets=n_outputs, **ensemble)
    if header.get_field("average_tree_output")[0]:
        every = (classes < 0).sum()
        counts = np.array([every + (classes == output).sum() for output in range(n_outputs)], np.float32)
        sums = graph.add("Div", sums, graph.constant(np.maximum(counts, 1)))
    if base.any():
        sums = graph.add("Add", sums, graph.constant(base.astype(np.float32)))
    predictions = _postprocess(graph, sums, header)
    if is_classifier(model) and n_outputs == 1:
        rest = graph.add("Sub", graph.constant(np.ones(1, np.float32)), predictions)
        predictions = graph.add("Concat", rest, predictions, axis=1)
        n_outputs = 2
    graph.add("Identity", predictions, output=OUTPUT)
    tensor = helper.make_tensor_value_info
    n_features = int(header.get_field("num_feature")[0])
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "forest",
            [tensor(INPUT, TensorProto.FLOAT, ["rows", n_features])],
            [tensor(OUTPUT, TensorProto.FLOAT, ["rows", n_outputs])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()],
        ir_version=_IR_VERSION,
        producer_name="dmls",
    )
    helper.set_model_props(proto, dict(metadata))
    return proto


class _Graph:
    """Nodes and constants of a graph that is being built; each node has one output."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:  # noqa: ANN401
        from onnx import helper

        output = output or f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def constant(self, values: NDArray[np.float32]) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name


def _tree_attributes(trees: list[Any], classes: NDArray[np.int32], n_outputs: int) -> dict[str, Any]:
    """Return the attributes of ``TreeEnsembleRegressor``; raise ServingError for what it cannot express."""
    sizes = [int(tree.get_field("num_nodes")[0]) for tree in trees]
    if sum(sizes) > MAX_NODES:
        raise ServingError(
            f"the forest has {sum(sizes):,} nodes, more than an ONNX file holds ({MAX_NODES:,}): "
            "train fewer or shallower trees"
        )
    if any(tree.get_field("has_categorical_split")[0] for tree in trees):
        raise ServingError("ONNX cannot express the model's categorical splits: use another target")
    nodes: dict[str, list[NDArray[Any]]] = {}
    leaves: dict[str, list[NDArray[Any]]] = {}
    for number, (tree, size) in enumerate(zip(trees, sizes, strict=True)):
        left, tests = tree.get_field("cleft"), tree.get_field("cmp")
        leaf = left < 0
        for name, values in {
            "treeids": np.full(size, number),
            "nodeids": np.arange(size),
            "featureids": np.where(leaf, 0, tree.get_field("split_index")),
            "values": np.where(leaf, 0, tree.get_field("threshold")).astype(np.float32),
            "modes": np.where(leaf, 0, tests),
            "truenodeids": np.where(leaf, 0, left),
            "falsenodeids": np.where(leaf, 0, tree.get_field("cright")),
            "missing_value_tracks_true": np.where(leaf, 0, tree.get_field("default_left")),
        }.items():
            nodes.setdefault(name, []).append(values)
        owners, outputs, weights = _leaves(tree, np.flatnonzero(leaf), int(classes[number]), n_outputs)
        for name, values in {
            "treeids": np.full(len(owners), number),
            "nodeids": owners,
            "ids": outputs,
            "weights": weights.astype(np.float32),
        }.items():
            leaves.setdefault(name, []).append(values)
    attributes = {f"nodes_{name}": np.concatenate(parts).tolist() for name, parts in nodes.items()}
    attributes |= {f"target_{name}": np.concatenate(parts).tolist() for name, parts in leaves.items()}
    unknown = set(attributes["nodes_modes"]) - set(_MODES)
    if unknown:
        raise ServingError(f"ONNX export: tests other than < and <= (Treelite's codes {sorted(unknown)})")
    attributes["nodes_modes"] = [_MODES[mode] for mode in attributes["nodes_modes"]]
    return attributes


def _leaves(
    tree: Any,  # noqa: ANN401  untyped
    leaves: NDArray[np.intp],
    output: int,
    n_outputs: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[Any]]:
    """Return node, output and weight of every value in the leaves; ``output`` -1: a leaf has all."""
    if output >= 0:
        return leaves, np.full(len(leaves), output), tree.get_field("leaf_value")[leaves]
    begin = tree.get_field("leaf_vector_begin")[leaves].astype(np.intp)
    every = np.arange(n_outputs)
    weights = tree.get_field("leaf_vector")[(begin[:, np.newaxis] + every).reshape(-1)]
    return np.repeat(leaves, n_outputs), np.tile(every, len(leaves)), weights


def _postprocess(graph: _Graph, sums: str, header: Any) -> str:  # noqa: ANN401  untyped
    """Add Treelite's function from sums to predictions,."""
    name = str(header.get_field("postprocessor"))
    alpha = header.get_field("sigmoid_alpha").astype(np.float32)

    def sigmoid() -> str:
        return graph.add("Sigmoid", graph.add("Mul", sums, graph.constant(alpha)))

    postprocessors: dict[str, Callable[[], str]] = {
        "identity": lambda: sums,
        "identity_multiclass": lambda: sums,
        "sigmoid": sigmoid,
        "multiclass_ova": sigmoid,
        "softmax": lambda: graph.add("Softmax", sums, axis=1),
        "exponential": lambda: graph.add("Exp", sums),
        "logarithm_one_plus_exp": lambda: graph.add("Softplus", sums),
    }
    if name not in postprocessors:
        raise ServingError(
            f"ONNX export: the model's function {name!r} is not one of {', '.join(postprocessors)}"
        )
    return postprocessors[name]()
