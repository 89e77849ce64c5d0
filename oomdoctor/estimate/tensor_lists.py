"""Lists of tensors, in which a loop keeps what each round made for the backward pass.

A list shares the buffers of its members; it is copied (the list, not the members) when somebody
writes to it while another holds it.
"""

from __future__ import annotations

from oomdoctor.estimate.buffers import Buffer, Memory
from oomdoctor.estimate.nodes import Node
from oomdoctor.estimate.tensors import Tensor

MAX_LENGTH = 100_000
NOTHING = Tensor((), "none")
"""A member that was not written yet."""


# ------------------------------------------------------------------ lists and loops


def _new_list(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    return [Tensor((), "variant", None, Buffer(None, []))]


def _reserve(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    size = x[1].value if isinstance(x[1].value, int) else 0
    return [Tensor((), "variant", None, Buffer(None, [NOTHING] * min(size, MAX_LENGTH)))]


def _own_list(memory: Memory, tensor: Tensor) -> Tensor:
    """Return the list to write to: the same one where nobody else holds it."""
    buffer = tensor.buffer
    if buffer.refs == 1:
        return memory.share(tensor)
    children = [memory.share(child) for child in buffer.children or []]
    return Tensor((), "variant", None, Buffer(None, children))


def _push(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    result = _own_list(memory, x[0])
    result.buffer.children.append(memory.share(x[1]))
    return [result]


def _pop(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    result = _own_list(memory, x[0])
    children = result.buffer.children
    element = children.pop() if children else NOTHING
    return [result, element]


def _set_item(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    result = _own_list(memory, x[0])
    children = result.buffer.children
    at = x[1].value if isinstance(x[1].value, int) else len(children) - 1
    while len(children) <= at:
        children.append(NOTHING)
    memory.drop(children[at])
    children[at] = memory.share(x[2])
    return [result]


def _get_item(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    children = x[0].buffer.children or []
    at = x[1].value if isinstance(x[1].value, int) else 0
    element = children[at] if at < len(children) else NOTHING
    kind = node.outputs[0]
    if element is NOTHING or element.dtype == "none":
        template = next((c for c in children if c.dtype != "none"), None)
        dims = template.dims if template else tuple(d or batch for d in kind.shape or ())
        return [memory.allocated(node, Tensor(dims, kind.dtype))]
    return [memory.share(element)]


def _stack(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    children = x[0].buffer.children or []
    kind = node.outputs[0]
    template = next((c for c in children if c.dtype != "none"), None)
    dims = template.dims if template else tuple(d or batch for d in (kind.shape or ())[1:])
    return [memory.allocated(node, Tensor((len(children), *dims), kind.dtype))]


def _unstack(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    source = x[0]
    rows = source.dims[0] if source.dims else 0
    children = [memory.allocated(node, Tensor(source.dims[1:], source.dtype)) for _ in range(rows)]
    return [Tensor((), "variant", None, Buffer(None, children))]


def _list_length(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    return [Tensor((), "int32", len(x[0].buffer.children or []))]


def _zeros_like(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    children = [
        memory.allocated(node, Tensor(c.dims, c.dtype)) if c.dtype != "none" else NOTHING
        for c in x[0].buffer.children or []
    ]
    return [Tensor((), "variant", None, Buffer(None, children))]


def _add_n(memory: Memory, node: Node, x: list[Tensor], batch: int) -> list[Tensor]:
    longest = max((t.buffer.children or [] for t in x), key=len)
    children = [
        memory.allocated(node, Tensor(c.dims, c.dtype)) if c.dtype != "none" else NOTHING
        for c in longest
    ]
    return [Tensor((), "variant", None, Buffer(None, children))]


OPERATIONS = {
    "EmptyTensorList": _new_list,
    "TensorListReserve": _reserve,
    "TensorListPushBack": _push,
    "TensorListPopBack": _pop,
    "TensorListSetItem": _set_item,
    "TensorListGetItem": _get_item,
    "TensorListStack": _stack,
    "TensorListFromTensor": _unstack,
    "TensorListLength": _list_length,
}
ON_LISTS = {"ZerosLike": _zeros_like, "AddN": _add_n}
"""Operations that also take ordinary tensors."""
