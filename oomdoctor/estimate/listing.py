"""Asks Grappler, TensorFlow's graph optimizer, in which order it lists the nodes of a step.

That order decides which of several ready operations runs first. Asking costs about half as much
as tracing did, so it is done for small graphs only: there one layer's gradient more or less shows
in the peak. In large graphs such differences cancel out, and the order is worked out instead
(`ordering.py`).
"""

from __future__ import annotations

from typing import Any

MOST_NODES = 5000
"""Larger graphs are not handed to Grappler."""


def places(concrete: Any, moved: dict[str, list[str]]) -> dict[str, int]:
    """Return the place of each node by name; empty where Grappler was not asked or gave up.

    Args:
        concrete: A traced function.
        moved: Nodes whose inputs Grappler will change, with what they will be. Asked like this it
            merges nodes first, and would change some of them otherwise than before a step runs.
    """
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
    from tensorflow.python.grappler import tf_optimizer

    graph = concrete.graph
    if len(graph.get_operations()) > MOST_NODES:
        return {}
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.TWO
    options.min_graph_nodes = -1
    try:
        listed = tf_optimizer.OptimizeGraph(
            config, _as_function(graph, moved), verbose=False, cluster=_one_cpu()
        )
    except Exception:  # it refuses some graphs; the order is then worked out
        return {}
    return {node.name: place for place, node in enumerate(listed.node)}


def _one_cpu() -> Any:
    """Return a machine on paper; without one, Grappler would start a session on this one."""
    from tensorflow.core.protobuf import device_properties_pb2
    from tensorflow.python.grappler import cluster

    kind = device_properties_pb2.DeviceProperties(
        type="CPU", frequency=2000, num_cores=2, memory_size=1 << 36
    )
    name = "/job:localhost/replica:0/task:0/device:CPU:0"
    device = device_properties_pb2.NamedDevice(name=name, properties=kind)
    return cluster.Cluster(devices=[device])


def _as_function(graph: Any, moved: dict[str, list[str]]) -> Any:
    """Return the graph as TensorFlow's runtime sees it: with arguments and return values."""
    from tensorflow.core.protobuf import meta_graph_pb2

    meta = meta_graph_pb2.MetaGraphDef()
    definition = meta.graph_def
    definition.CopyFrom(graph.as_graph_def())
    arguments = {tensor.op.name: number for number, tensor in enumerate(graph.inputs)}
    for node in definition.node:
        for at, source in enumerate(moved.get(node.name, ())):
            node.input[at] = source
        if node.name in arguments:
            kind = node.attr["dtype"].type
            node.op = "_Arg"
            node.ClearField("attr")
            node.attr["T"].type = kind
            node.attr["index"].i = arguments[node.name]
    wanted = meta.collection_def["train_op"].node_list.value
    # In a function, Grappler keeps whatever has a side effect, and walks back from it.
    wanted.extend(
        op.name for op in graph.get_operations() if op.op_def is not None and op.op_def.is_stateful
    )
    for number, tensor in enumerate(graph.outputs):
        result = definition.node.add(name=f"result_{number}_RetVal", op="_Retval")
        result.input.append(tensor.name)
        result.attr["T"].type = tensor.dtype.as_datatype_enum
        result.attr["index"].i = number
        wanted.append(result.name)
    return meta
