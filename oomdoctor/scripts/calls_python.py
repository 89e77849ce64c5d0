"""What calls give of Python itself, and of packages that list, split and open files."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from oomdoctor.scripts import checks_copies, checks_loops, checks_pictures, checks_sizes
from oomdoctor.scripts.names import LISTINGS
from oomdoctor.scripts.values import (
    Array,
    Dataset,
    Function,
    Items,
    Length,
    Listing,
    Maker,
    Number,
    Other,
    Picture,
    Sequence,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.calls import Arguments
    from oomdoctor.scripts.walker import Walker

_PASSED_ON = frozenset(("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.trange"))
_FOLDS = frozenset(
    f"sklearn.model_selection.{name}"
    for name in ("KFold", "StratifiedKFold", "GroupKFold", "RepeatedKFold", "ShuffleSplit",
                 "StratifiedShuffleSplit")
)  # fmt: skip
_VIDEOS = frozenset(("cv2.VideoCapture", "moviepy.editor.VideoFileClip", "imageio.get_reader"))
_VOLUMES = frozenset(
    (
        "nibabel.load",
        "pydicom.dcmread",
        "pydicom.read_file",
        "dicom.read_file",
        "pydicom.filereader.dcmread",
    )
)


def other_package(
    walker: Walker, node: ast.Call, name: str, given: Arguments
) -> tuple[bool, Value]:
    """Return whether a function of another package matters here, and what it gives."""
    if name in _PASSED_ON:
        return True, given.args[0] if given.args else None
    if name in ("sklearn.model_selection.train_test_split", "sklearn.utils.shuffle"):
        return True, _split(walker, node, given, 1 if name.endswith("shuffle") else 2)
    if name in LISTINGS:
        return True, Listing(LISTINGS[name])
    if name in _FOLDS:
        return True, Maker("folds", Items((Maker("index"), Maker("index"))))
    if name in _VIDEOS:
        return True, Maker("video")
    if name in _VOLUMES:
        return True, Maker("volume", source=Number())
    if name in ("collections.defaultdict", "collections.OrderedDict"):
        return True, Maker("dict", Number(len(walker.loops)))
    if name == "collections.deque":
        return True, checks_sizes.buffer(walker, node, given)
    return False, None


def builtin(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    """Return what a function of Python itself gives."""
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


def bound(function: Function, args: list[Value], keywords: dict[str, Value]) -> dict[str, Value]:
    """Return arguments by the names a function gives them."""
    arguments = function.node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if function.owner is not None or (names and names[0] == "self"):
        names = names[1:]
    return {**dict(zip(names, args, strict=False)), **keywords}
