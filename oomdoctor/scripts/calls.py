"""What a call gives, by what is called."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts import (
    checks_copies,
    checks_data,
    checks_loops,
    checks_pictures,
    checks_sizes,
)
from oomdoctor.scripts.calls_arrays import array_method, make_array
from oomdoctor.scripts.calls_data import dataset_method, make_dataset
from oomdoctor.scripts.calls_pictures import picture_method
from oomdoctor.scripts.calls_model import (
    make_model_part,
    model_method,
    old_generator,
    strategy_method,
)
from oomdoctor.scripts.layout import Layout
from oomdoctor.scripts.names import LISTINGS, canonical, is_foreign
from oomdoctor.scripts.values import (
    Array,
    Class,
    Dataset,
    Function,
    Instance,
    Items,
    Length,
    Listing,
    Maker,
    Model,
    Number,
    Other,
    Picture,
    Ref,
    Sequence,
    Strategy,
    Symbolic,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker

TRACERS = frozenset(("tensorflow.function",))

BUILTINS = frozenset(
    ("dict", "enumerate", "float", "int", "iter", "len", "list", "map", "next", "range", "reversed",
     "set", "sorted", "tuple", "zip")
)  # fmt: skip

_PASSED_ON = frozenset(("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.trange"))
_DATASET_METHODS = frozenset(
    ("as_numpy_iterator", "batch", "interleave", "padded_batch", "prefetch")
)
"""Methods that only a `tf.data.Dataset` has, in a file that imports TensorFlow."""
_LISTING_METHODS = frozenset(("glob", "rglob", "iterdir"))
_TABLE_METHODS = frozenset(("dropna", "drop", "reset_index", "copy", "merge", "query", "fillna"))
_FOLDS = frozenset(
    f"sklearn.model_selection.{name}"
    for name in ("KFold", "StratifiedKFold", "GroupKFold", "RepeatedKFold", "ShuffleSplit",
                 "StratifiedShuffleSplit")
)  # fmt: skip
_NETWORK = re.compile(
    r"(.*_)?(actor|autoencoder|critic|decoder|discriminator|encoder|generator|net|network|predictor)",
    re.IGNORECASE,
)
_VIDEOS = frozenset(("cv2.VideoCapture", "moviepy.editor.VideoFileClip", "imageio.get_reader"))
_VOLUMES = frozenset(
    ("nibabel.load", "pydicom.dcmread", "pydicom.read_file", "dicom.read_file", "pydicom.filereader.dcmread")
)
_GROWTH = ("set_memory_growth", "logical_device_configuration", "virtual_device_configuration",
           "LogicalDeviceConfiguration", "VirtualDeviceConfiguration", "set_visible_devices",
           "GPUOptions")  # fmt: skip


_LEN = Ref("builtins.len")
MAX_NAME = 200
"""Characters of a full name: none of a package's is longer, and each `a = a.b` lengthens it."""


class Arguments:
    """The values a call is given."""

    __slots__ = ("args", "keywords", "node")

    def __init__(self, walker: Walker, node: ast.Call) -> None:
        self.node = node
        self.args = [walker.value(arg) for arg in node.args]
        self.keywords = {
            keyword.arg: walker.value(keyword.value) for keyword in node.keywords if keyword.arg
        }
        for keyword in node.keywords:
            if keyword.arg is None:
                walker.value(keyword.value)

    def get(self, place: int, name: str) -> Value:
        """Return an argument by its place or its name."""
        if place < len(self.args):
            return self.args[place]
        return self.keywords.get(name)

    def expression(self, place: int, name: str) -> ast.expr | None:
        """Return the same as it is written."""
        if place < len(self.node.args):
            return self.node.args[place]
        return next((item.value for item in self.node.keywords if item.arg == name), None)

    def __contains__(self, name: str) -> bool:
        return name in self.keywords


def call(walker: Walker, node: ast.Call) -> Value:
    """Return what a call gives, having walked it."""
    function = node.func
    if isinstance(function, ast.Attribute):
        holder = walker.value(function.value)
        if not isinstance(holder, (Ref, Instance)):
            return _method(walker, node, holder, function.attr, Arguments(walker, node))
        if isinstance(holder, Instance) and holder.of.base == "model":
            known = function.attr in holder.attributes or function.attr in holder.of.methods
            if not known:
                Arguments(walker, node)
                return None
        callee = attribute(holder, function.attr)
    else:
        callee = walker.value(function)
        if callee == _LEN and node.args:
            walker.loose_lists.add(id(node.args[0]))
    given = Arguments(walker, node)
    if callee is None and given.args and isinstance(given.args[0], Array):
        return _prepared(walker, node, given.args[0])
    if isinstance(callee, Ref):
        return _imported(walker, node, callee.name, given)
    if isinstance(callee, Function):
        return _function(walker, node, callee, given)
    if isinstance(callee, Class):
        return _instance(walker, node, callee, given)
    return _object(callee, given)


def _prepared(walker: Walker, node: ast.Call, array: Array) -> Value:
    """Return what a function of another package gives that prepares images by its name."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if not array.is_whole or "preprocess" not in name:
        return None
    checks_copies.made(walker, node, node.args[0], array)
    return replace(array, dtype="float32")


def _object(callee: Value, given: Arguments) -> Value:
    """Return what calling an object gives."""
    first = given.args[0] if given.args else None
    if isinstance(callee, (Model, Maker)) and isinstance(first, Symbolic):
        return Symbolic()
    if isinstance(callee, Model):
        return Tensor()
    if isinstance(callee, Maker):
        if callee.kind == "loss":
            return Tensor(is_scalar=True)
        if callee.kind == "traced" or isinstance(first, Tensor):
            return Tensor()
    return None


def _function(walker: Walker, node: ast.Call, function: Function, given: Arguments) -> Value:
    if function.is_traced:
        checks_loops.traced_call(walker, node, function, given.args)
        walker.training(node)
    result = function.result
    if walker.will_run(function):
        result = walker.run(function, bound(function, given.args, given.keywords), node)
    if function.is_traced and result is None:
        return Tensor()
    if isinstance(result, Model) and result.loop is None and walker.loops and result.node:
        # A function that builds a model builds another one in each turn.
        return _built(walker, node, result)
    return result


def bound(function: Function, args: list[Value], keywords: dict[str, Value]) -> dict[str, Value]:
    """Return arguments by the names a function gives them."""
    arguments = function.node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if function.owner is not None or (names and names[0] == "self"):
        names = names[1:]
    return {**dict(zip(names, args, strict=False)), **keywords}


def has_signature(node: ast.Call) -> bool:
    """Return whether `tf.function` is told what it will be given."""
    return any(keyword.arg == "input_signature" for keyword in node.keywords)


def _built(walker: Walker, node: ast.AST, model: Model | None = None) -> Model:
    loop = walker.loops[-1] if walker.loops else None
    strategy = model.strategy if model else None
    strategy = walker.strategies[-1] if walker.strategies else strategy
    return Model(node=node, loop=loop, strategy=strategy, gpus=model.gpus if model else None)


# --------------------------------------------------------------------------- what is imported


def _imported(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    package = name.partition(".")[0]
    if package == "builtins":
        return _builtin(walker, node, name[9:], given)
    if name in _PASSED_ON:
        return given.args[0] if given.args else None
    if name in ("sklearn.model_selection.train_test_split", "sklearn.utils.shuffle"):
        return _split(walker, node, given, 1 if name.endswith("shuffle") else 2)
    if name in LISTINGS:
        return Listing(LISTINGS[name])
    if name in _FOLDS:
        return Maker("folds", Items((Maker("index"), Maker("index"))))
    if name in _VIDEOS:
        return Maker("video")
    if name in _VOLUMES:
        return Maker("volume", source=Number())
    if name in ("collections.defaultdict", "collections.OrderedDict"):
        return Maker("dict", Number(len(walker.loops)))
    if name == "collections.deque":
        return checks_sizes.buffer(walker, node, given)
    if package in ("tensorflow", "keras", "tensorflow_datasets"):
        return _of_framework(walker, node, name, given)
    if package in ("numpy", "h5py", "cv2", "PIL", "imageio", "skimage", "matplotlib", "tifffile",
                   "SimpleITK", "scipy", "patchify", "keras_preprocessing"):
        return make_array(walker, node, name, given)
    if is_foreign(name):
        return Other()
    if walker.project is None:
        return None
    found = walker.project.symbol(walker, name)
    if isinstance(found, Function):
        return _function(walker, node, found, given)
    if isinstance(found, Class):
        return _instance(walker, node, found, given)
    return None


def _instance(walker: Walker, node: ast.Call, made: Class, given: Arguments) -> Value:
    walker.walk_class(made, given.args, given.keywords, node)
    if made.base == "model":
        return _built(walker, node)
    return walker.instance_of(made)


def _of_framework(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    last = name.rpartition(".")[2]
    if name in TRACERS:
        return _trace(walker, node, given)
    if last == "clear_session":
        for loop in walker.loops:
            loop.is_cleared = True
        return Other()
    if any(word in last for word in _GROWTH):
        walker.grows = True
        return Other()
    is_dataset, value = make_dataset(walker, node, name, given)
    if is_dataset:
        return value
    value = make_array(walker, node, name, given)
    if value is not None:
        return value
    value = make_model_part(walker, node, name, given)
    if isinstance(value, Model):
        return _built(walker, node, value)
    return value


def _trace(walker: Walker, node: ast.Call, given: Arguments) -> Value:
    if not given.args:
        return Ref("tensorflow.function")
    checks_loops.traced_in_loop(walker, node)
    wrapped = given.args[0]
    if isinstance(wrapped, Function):
        return Function(
            wrapped.node,
            wrapped.scope,
            is_traced=True,
            has_signature=has_signature(node),
            owner=wrapped.owner,
        )
    return Maker("traced")


def _builtin(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    first = given.args[0] if given.args else None
    if name == "range":
        last = given.args[min(1, len(given.args) - 1)] if given.args else None
        return Maker("range", last)
    if name == "enumerate":
        return Maker("enumerate", element_of(first), first)
    if name == "zip":
        source = Items.of(given.args)
        return Maker("zip", Items.of(element_of(value) for value in given.args), source)
    if name == "map":
        return _mapped(walker, node, given)
    if name == "dict":
        return Maker("dict", Number(len(walker.loops)))
    if name == "next":
        return element_of(first)
    if name in ("iter", "reversed") or (isinstance(first, Listing) and name != "len"):
        return first
    if name == "len":
        return Length()
    if name in ("int", "float"):
        return first if isinstance(first, Length) else Number()
    if isinstance(first, Dataset):
        checks_loops.held(walker, node, first, is_fixable=walker.is_loose_list(node))
        return Sequence(len(walker.loops))
    if isinstance(first, (Sequence, Maker)) and name != "set":
        return first
    return Sequence(len(walker.loops)) if name == "list" else None


def element_of(over: Value) -> Value:
    """Return what a loop over a value binds in each turn."""
    if isinstance(over, Dataset):
        size = over.batch_size if over.is_batched else None
        return Tensor(of_dataset=over, is_input=True, batch_size=size)
    if isinstance(over, Sequence):
        return over.item
    if isinstance(over, Listing):
        if over.kind == "walk":
            return Items((Other(), Listing(), Listing()))
        return Other() if over.kind == "files" else None
    if isinstance(over, Maker):
        if over.kind == "range":
            return Number(varies=True)
        if over.kind == "enumerate":
            return Items.of((Number(varies=True), over.item))
        if over.kind == "tokens":
            return over
        return over.item if over.kind in ("zip", "distributed", "folds") else None
    return None


# --------------------------------------------------------------------------- methods


def _method(walker: Walker, node: ast.Call, holder: Value, name: str, given: Arguments) -> Value:
    handler = _METHODS.get(type(holder))
    if handler is not None:
        return handler(walker, node, holder, name, given)
    if holder is None:
        return _unknown_method(walker, node, name, given)
    if isinstance(holder, Other) and name in ("fit_transform", "transform") and given.args:
        first = given.args[0]  # a scaler or an encoder of scikit-learn
        if isinstance(first, Array):
            checks_copies.made(walker, node, given.expression(0, "X"), first)
            return replace(first, dtype=None, load=None)
    return holder if isinstance(holder, Other) else None


def _unknown_method(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    """Return what a method gives whose name alone tells what it belongs to."""
    if not walker.knows_framework:
        return None
    if name in _LISTING_METHODS:
        return Listing()
    if name in _DATASET_METHODS or (name == "map" and "num_parallel_calls" in given):
        return dataset_method(walker, node, Dataset(), name, given)
    if name == "take" and given.args and isinstance(given.args[0], Number):
        return Dataset(content="small")
    if old_generator(walker, node, name):
        return Other()
    if name == "fit" and given.keywords.keys() & {"epochs", "validation_data", "steps_per_epoch"}:
        return model_method(walker, node, Model(), name, given)
    if name == "apply_gradients":
        walker.training(node, steps=True)
    if name == "predict" and given.args and _is_called_model(node):
        return model_method(walker, node, Model(), name, given)
    return None


def _is_called_model(node: ast.Call) -> bool:
    """Return whether `predict` is called on what people call a network."""
    holder = node.func.value if isinstance(node.func, ast.Attribute) else None
    name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
    return _NETWORK.fullmatch(name) is not None


def _list_method(walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments) -> Value:
    if name == "append" and given.args:
        value = given.args[0]
        if isinstance(value, Model) and value.loop is not None and holder.depth == 0:
            value.loop.keeps_models = True
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        label = owner.id if isinstance(owner, ast.Name) else None
        checks_pictures.appended(walker, node, holder, value, label)
        checks_loops.kept(walker, node, holder, value, node.args[0])
    elif name in ("extend", "insert", "clear", "pop"):
        holder.parts = ()
    return None


def _mapped(walker: Walker, node: ast.Call, given: Arguments) -> Value:
    """Return what `map` gives: the images that a function reads, where the names are files'."""
    if len(given.args) < 2 or not isinstance(given.args[0], Function):
        return None
    function, over = given.args[0], given.args[1]
    loop = walker.enter(node, over)
    names = bound(function, [element_of(over)], {})
    item = walker.run(function, names, node) if walker.will_run(function) else function.result
    checks_pictures.listed(walker, node, over, item)
    walker.leave(loop)
    made = Sequence(len(walker.loops), item)
    if isinstance(item, Picture) and not walker.loops:
        made.pictures = node
    return made


def _split(walker: Walker, node: ast.Call, given: Arguments, parts: int) -> Value:
    """Return the parts that data is split into, which are copies of it."""
    for argument, value in zip(node.args, given.args, strict=False):
        # Of an array of unknown size this is what everybody does.
        if isinstance(value, Array) and not (value.load and value.pictures is None):
            checks_copies.made(walker, node, _innermost(argument), value)
    values = [
        replace(value, count=None) if isinstance(value, Array) and parts > 1 else value
        for value in given.args
    ]
    return Items.of(value for value in values for _ in range(parts))


def _innermost(node: ast.expr) -> ast.expr:
    """Return what a chain of calls begins with: `x` of `np.array(x)`."""
    while isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    return node


def _tensor_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    if holder.is_numpy:
        return Other()
    if name != "numpy":
        return Tensor()
    if not holder.is_input:
        return Other()
    return Tensor(of_dataset=holder.of_dataset, is_input=True, is_numpy=True)


def _maker_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    if holder.kind == "video":
        frame = Picture(Layout(dtype="uint8"), node)
        return Items((Other(), frame)) if name == "read" else frame if name == "get_frame" else None
    if holder.kind == "volume" and name in ("get_fdata", "get_data"):
        return Picture(Layout(dtype="float64"), node)
    if holder.kind == "folds" and name == "split":
        return holder
    if holder.kind == "deque" and name == "append":
        checks_sizes.remembered(walker, node, holder, given)
        return None
    if name == "apply_gradients":
        walker.training(node, steps=True)
    if holder.kind == "tape" and name == "gradient":
        return Tensor()
    if holder.kind == "datagen" and name == "flow":
        checks_data.handed_over(walker, given.get(0, "x"))
    return None


def _listing_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    if name in ("head", "sample"):
        return None
    return Listing("table" if name in _TABLE_METHODS else "rows")


def _number_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    return Length() if name == "numpy" else None




def attribute(holder: Value, name: str) -> Value:
    """Return what an attribute of a value is, where that matters."""
    if isinstance(holder, Ref):
        is_known = len(holder.name) <= MAX_NAME
        return Ref(canonical(f"{holder.name}.{name}")) if is_known else Other()
    if isinstance(holder, Instance):
        if name in holder.attributes:
            return holder.attributes[name]
        return holder.of.methods.get(name)
    if isinstance(holder, Strategy):
        return Number(holder.replicas) if name == "num_replicas_in_sync" else None
    if isinstance(holder, (Array, Picture)):
        return Maker("shape", source=holder) if name == "shape" else None
    if isinstance(holder, Maker) and holder.kind == "volume":
        is_dicom = name == "pixel_array"
        return Picture(Layout(dtype="uint16"), ast.Pass()) if is_dicom else None
    if isinstance(holder, Listing):
        return Maker("shape", source=holder) if name == "shape" else Listing("rows")
    return holder if isinstance(holder, Other) else None


_METHODS: dict[type, Callable[[Any, ast.Call, Any, str, Arguments], Value]] = {
    Dataset: dataset_method,
    Array: array_method,
    Model: model_method,
    Strategy: strategy_method,
    Sequence: _list_method,
    Tensor: _tensor_method,
    Maker: _maker_method,
    Length: _number_method,
    Picture: picture_method,
    Listing: _listing_method,
}
