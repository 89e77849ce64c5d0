"""The user's layer behind the name of an op.

An op's name is a path of scopes: the model, its layers, and below them what a layer is made of.
The innermost scope that is neither an op's type nor such a part is the layer.
"""

from __future__ import annotations

import re

from oomdoctor.diagnose.events import Log
from oomdoctor.diagnose.stage import is_optimizer_name

_KERAS_3 = re.compile(r"keras[/\\]src[/\\](?:backend|trainers|ops|layers[/\\]layer)\b")
_WRAPPERS = re.compile(
    r"^(?:gradient_tape|gradients?|training|train_step|while|cond|body|loss|metrics|optimizer\w*"
    r"|StatefulPartitionedCall\w*|PartitionedCall\w*|replica_\d+|tower_\d+|GradientTape|import|map"
    r"|scan|jit\(.*|functional_\d+_1|Forward_Phase|Backward_Phase|training_\d+|update|wrapped)$"
)
_PART = re.compile(
    r"add|sub|mul|truediv|div|convolution|moments|batchnorm|kernel|bias|gamma|beta|"
    r"mean|variance|read|assign|zeros|ones|zeros_like|random_uniform|truncated_normal|"
    r"random_normal|initial_value|value|einsum|transpose|reshape|concat|stack|split|"
    r"cast|square|sqrt|sum|max|min|matmul|softmax|gelu|dropout|normal|uniform|"
    r"var_mean|weights|biases|resize|depthwise|separable_conv2d|pooling|padding|"
    r"embedding_lookup|embeddings|initializer|shape|expanddims|squeeze|strided_slice|"
    r"tensordot|relu|sigmoid|tanh|elu|conv1d|conv2d_transpose|conv3d_transpose|"
    r"accumulator|readvariableop|noop|identity|moving_mean|moving_variance|"
    r"assignmovingavg|tile|gather|onehot|one_hot|rsqrt"
)
"""What layers are made of; in lower case, without a number."""
_UNNUMBERED = frozenset(("conv1d", "embeddings", "dropout", "softmax", "weights", "add"))
"""Parts that are also default names of layers: a layer where a number follows."""
_OP_TYPE = re.compile(
    r"(?:Conv[123]D(?:Transpose)?|DepthwiseConv2d|SeparableConv2D|MatMul|BatchMatMul|BiasAdd|Relu6?"
    r"|LeakyRelu|Elu|Selu|Gelu|Sigmoid|Tanh|Softmax|Softplus|Mean|Sum|Max|Min|Prod|All|Any|Cast"
    r"|Reshape|Transpose|Concat|Pack|Unpack|Stack|Split|Pad|MirrorPad|Slice|StridedSlice|Gather|Tile"
    r"|Fill|Zeros|Ones|Const|Assert|Assign\w*|Add|AddN|Sub|Mul|RealDiv|Div|Maximum|Minimum|Square"
    r"|Sqrt|Rsqrt|Pow|Exp|Log|Tensordot|Einsum|FusedBatchNorm\w*|BatchNorm|MaxPool(?:3D)?|AvgPool"
    r"(?:3D)?|Upscale2D|Resize\w*|Extract\w*Patches|Random\w+|Stateless\w+|TruncatedNormal|Dropout"
    r"|LSTMBlockCell|CudnnRNN\w*|TensorList\w*|EmptyTensorList|SparseSoftmaxCrossEntropy\w*"
    r"|\w+(?:Grad|Op|V\d|WithLogits|Native)|\w+Backprop\w*|Initializer|Select\w*|Where|OneHot"
    r"|ExpandDims|Squeeze|Identity|Print|Shape|BroadcastTo|Greater|Less|Equal)"
)


def is_keras_3(log: Log) -> bool:
    """Whether the log shows Keras 3 at work."""
    tags = log.of("op_tag")
    return any(_KERAS_3.search(frame.file) for frame in log.frames) or any(
        "_step_on_iterator" in (tag.op or "") for tag in tags
    )


def layer_of(op: str | None, *, is_numbered: bool = False) -> str | None:
    """Return the Keras layer that an op belongs to, by the op's name.

    Args:
        op: The name of the op, a path of scopes.
        is_numbered: Whether scopes are the names of layers with `_1` after them, as in Keras 3
            (seen in 3.15 with TensorFlow 2.21, in training and in prediction).

    Example:
        >>> layer_of("dual_encoder/model_1/conv2d_17/Relu_1")
        'conv2d_17'
        >>> layer_of("gradient_tape/sequential_1/dense_2/MatMul/MatMul")
        'dense_2'
        >>> layer_of("model/block_3/Conv2D_2/Conv2DBackpropInput")
        'block_3'
        >>> layer_of("Conv2D") is None
        True
        >>> layer_of("sequential_1/conv2d_19_1/convolution", is_numbered=True)
        'conv2d_19'
    """
    if not op:
        return None
    path = _outside_loop([part for part in op.split(" ")[0].strip("/").split("/") if part])
    # The last part is the op itself.
    for part in reversed(path[:-1]):
        updated = re.fullmatch(r"update_([A-Za-z].*)", part)
        if updated is not None:
            return updated[1]
        name = re.sub(r"_grad$", "", part)
        if is_optimizer_name(name) or not name[:1].isalpha():
            continue
        if not _WRAPPERS.match(name) and not _is_part(name):
            is_in_numbered = is_numbered and any(outer.endswith("_1") for outer in path[:2])
            return name.removesuffix("_1") if is_in_numbered else name
    return None


def _outside_loop(path: list[str]) -> list[str]:
    """The path up to the loop of a recurrent layer: its cell is not what the user named."""
    if "while" not in path:
        return path
    before = path[: path.index("while") + 1]
    named = [part for part in before[:-1] if part[:1].isalpha() and not _WRAPPERS.match(part)]
    # A model and a layer; a loop around the whole model has neither.
    return before if len(named) >= 2 else path


def _is_part(name: str) -> bool:
    plain = re.sub(r"_\d+$", "", name)
    if _OP_TYPE.fullmatch(plain):
        return True
    if plain != name and plain in _UNNUMBERED:
        return False
    return bool(_PART.fullmatch(plain.lower())) or name.startswith("update_")
