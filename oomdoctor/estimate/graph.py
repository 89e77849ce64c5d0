"""Turns a live TensorFlow function graph into plain nodes.

Shapes are taken from the live tensors: a graph that went through a file has lost those that
follow from variables. Besides `keras_model`, this is the only module here that knows TensorFlow.
"""

from __future__ import annotations

from typing import Any

from oomdoctor.estimate.nodes import Graph, Node, Shape, TensorType

_ATTRS = frozenset(
    {
        "T", "N", "axis", "batch_dims", "begin_mask", "data_format", "depth_radius", "dilations",
        "DstT", "ellipsis_mask", "end_mask", "equation", "adj_x", "adj_y", "keep_dims", "ksize",
        "new_axis_mask", "num_split", "out_type", "output_type", "padding", "shrink_axis_mask",
        "squeeze_dims", "SrcT", "strides", "transpose_a", "transpose_b", "explicit_paddings", "num",
        "element_dtype", "dtype", "is_training", "parallel_iterations", "_XlaMustCompile",
    }
)  # fmt: skip
_BODIES = ("f", "body", "cond", "then_branch", "else_branch", "branches")
_SMALL = 64
"""Constants of more elements are never shapes, axes or loop counters."""


def _shape_of(tensor: Any) -> Shape | None:
    shape = tensor.shape
    return None if shape.rank is None else tuple(shape.as_list())


def _value_of(op: Any) -> Any:
    from tensorflow.python.framework import tensor_util

    proto = op.get_attr("value")
    size = 1
    for dim in proto.tensor_shape.dim:
        size *= dim.size
    if size > _SMALL or proto.dtype not in (1, 3, 9, 10, 14, 19):
        # float32, int32, int64, bool, bfloat16 and float16: what shapes and factors are made of
        return None
    array = tensor_util.MakeNdarray(proto)
    return array.item() if array.ndim == 0 else [item.item() for item in array.ravel()]


def _attrs_of(node_def: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    for key, attr in node_def.attr.items():
        if key not in _ATTRS:
            continue
        kind = attr.WhichOneof("value")
        if kind == "list":
            attrs[key] = list(attr.list.i)
        elif kind == "s":
            attrs[key] = attr.s.decode("utf-8", "replace")
        elif kind is not None:
            attrs[key] = getattr(attr, kind)
    return attrs


class _Reader:
    def __init__(self, variable_of: dict[int, int]) -> None:
        self.variable_of = variable_of
        self.seen: dict[str, Graph] = {}

    def graph(self, live: Any, captures: dict[int, int]) -> Graph:
        operations = live.get_operations()
        index = {op: number for number, op in enumerate(operations)}
        nodes = [self._node(op, index, live) for op in operations]
        arguments = []
        for tensor in live.inputs:
            number = index[tensor.op]
            arguments.append(number)
            nodes[number].variable = captures.get(id(tensor))
        results = tuple((index[t.op], t.value_index) for t in live.outputs)
        effects = tuple(index[op] for op in live.control_outputs if op in index)
        return Graph(nodes, tuple(arguments), results, effects)

    def _node(self, op: Any, index: dict[Any, int], live: Any) -> Node:
        kind = op.type
        outputs = tuple(TensorType(t.dtype.base_dtype.name, _shape_of(t)) for t in op.outputs)
        node = Node(
            op.name,
            kind,
            tuple((index[t.op], t.value_index) for t in op.inputs),
            tuple(index[c] for c in op.control_inputs),
            outputs,
        )
        if kind == "Const":
            node.value = _value_of(op)
        elif kind not in _PLAIN:
            node_def = op.node_def
            node.attrs = _attrs_of(node_def)
            for key in _BODIES:
                if key in node_def.attr:
                    self._add_bodies(node, key, node_def.attr[key], live)
        return node

    def _add_bodies(self, node: Node, key: str, attr: Any, live: Any) -> None:
        functions = [attr.func] if attr.WhichOneof("value") == "func" else list(attr.list.func)
        for number, function in enumerate(functions):
            body = self._body(function.name, live)
            if body is not None:
                node.bodies[key if len(functions) == 1 else f"{key}_{number}"] = body

    def _body(self, name: str, live: Any) -> Graph | None:
        if name not in self.seen:
            from tensorflow.python.framework import function_def_to_graph

            definition = live._get_function(name)
            graph = getattr(definition, "graph", None)
            if graph is None:
                fdef = live.as_graph_def(from_version=1 << 30).library
                found = [f for f in fdef.function if f.signature.name == name]
                if not found:
                    return None
                graph = function_def_to_graph.function_def_to_graph(found[0])
            self.seen[name] = self.graph(graph, {})
        return self.seen[name]


_PLAIN = frozenset(
    {
        "ReadVariableOp", "Identity", "Mul", "AddV2", "Sub", "Placeholder", "Shape", "Reshape",
        "RealDiv", "Sqrt", "Pow", "Square", "AssignAddVariableOp", "AssignSubVariableOp", "NoOp",
        "Relu", "ReluGrad", "Relu6", "Relu6Grad", "Neg", "BroadcastTo", "Rsqrt", "RsqrtGrad",
        "SquaredDifference", "StopGradient", "AssignVariableOp", "AddN", "FloorMod", "Maximum",
        "BroadcastGradientArgs", "DynamicStitch", "SelectV2", "GreaterEqual", "Sigmoid", "Cast",
    }
)  # fmt: skip
"""Operations whose attributes do not matter here; reading attributes is the slow part."""


def read_graph(concrete: Any, variable_of: dict[int, int]) -> Graph:
    """Return a traced function as plain nodes.

    Args:
        concrete: The concrete function.
        variable_of: For the `id` of a captured resource tensor, the number of its variable.
    """
    live = concrete.graph
    captures = {
        id(inner): variable_of[id(outer)]
        for outer, inner in live.captures
        if id(outer) in variable_of
    }
    return _Reader(variable_of).graph(live, captures)
