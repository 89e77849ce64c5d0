"""What the walk knows of a value in a script. None stands for a value it knows nothing of."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from oomdoctor.scripts.layout import Dims, Layout, bytes_of, product

MAX_PARTS = 100
"""Values inside of one value, all together: `a = (a, a)` doubles them with each line."""
MAX_LOOKED_AT = 20_000
"""Parts of a loop or an argument that are searched for names."""


@dataclass(slots=True, eq=False)
class Loop:
    """A loop that is being walked."""

    node: ast.AST
    frame: int
    """The call of a function it stands in."""
    over: Value = None
    is_cleared: bool = False
    """Whether `clear_session` is called in it."""
    trains: bool = False
    """Whether a step of training is run in it."""
    steps: bool = False
    """Whether weights are changed in each turn."""
    keeps_models: bool = False
    """Whether a list keeps the models that are built in it."""
    pending: list[tuple[Any, ...]] = field(default_factory=list)
    """Matches that hold only if the loop turns out as it seems, told when it ends."""
    _assigned: frozenset[str] | None = None

    @property
    def assigned(self) -> frozenset[str]:
        """The names that change from turn to turn."""
        if self._assigned is None:
            self._assigned = frozenset(
                node.id
                for node in islice(ast.walk(self.node), MAX_LOOKED_AT)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            )
        return self._assigned


class Scope:
    """Names of a module, a function or a class body, inside another."""

    __slots__ = ("names", "outer")

    def __init__(self, outer: Scope | None) -> None:
        self.names: dict[str, Value] = {}
        self.outer = outer

    def find(self, name: str) -> Value:
        """Return what a name holds, here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


class Ended(Exception):
    """The rest of a block is not reached."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Something imported, by its full name: `tensorflow.data.Dataset`, `numpy.load`."""

    name: str


@dataclass(frozen=True, slots=True)
class Other:
    """Something known to be none of what the checks are about."""


@dataclass(frozen=True, slots=True)
class Number:
    """A Python number."""

    value: int | float | None = None
    varies: bool = False
    """Whether it changes from turn to turn of a loop."""


@dataclass(frozen=True, slots=True)
class Text:
    """A Python string."""

    value: str


@dataclass(frozen=True, slots=True)
class Length:
    """How many samples something has: `len(x)`, `x.shape[0]`, `dataset.cardinality()`."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A `tf.data.Dataset`."""

    is_batched: bool | None = None
    """None where its beginning was not seen."""
    batch: ast.Call | None = None
    """The call that batches, where it was seen."""
    batch_size: int | None = None
    drops: bool = False
    """Whether the last, partial batch is dropped."""
    content: str | None = None
    """`paths` before files are read, `samples`, `small`; None where that is not known."""
    layout: Layout | None = None
    """How large a sample is."""
    count: int | None = None
    """Samples."""
    elements: int | None = None
    """Samples or batches that `take` left."""
    is_pictures: bool = False
    """Whether its samples are decoded images."""

    @property
    def size_bytes(self) -> int | None:
        """What all samples take."""
        return product(self.count, self.layout.size_bytes if self.layout else None)


@dataclass(frozen=True, slots=True)
class Array:
    """A whole NumPy array, or data that lies in memory as one."""

    dtype: str | None = None
    load: ast.Call | None = None
    """The `np.load` it comes from."""
    is_mapped: bool = False
    is_packed: bool = False
    """Whether it comes out of an .npz file, which cannot be mapped."""
    pictures: ast.AST | None = None
    """Where picture files were gathered in a list to make it."""
    size: str | None = None
    """`small`, `builtin` for what `keras.datasets` has; None where that is not known."""
    is_whole: bool = False
    """Whether it has the image of each file."""
    is_hdf5: bool = False
    """Whether it was read whole from an HDF5 file."""
    dims: Dims | None = None
    """The shape of one sample."""
    count: int | None = None
    """Samples."""
    is_filled: bool = True
    """False for what `np.zeros` and its kin give, until something is written into it."""

    @property
    def each_bytes(self) -> int | None:
        """What one sample takes."""
        return bytes_of(self.dims, self.dtype)

    @property
    def size_bytes(self) -> int | None:
        """What the array takes."""
        return product(self.count, self.each_bytes)


@dataclass(frozen=True, slots=True)
class Model:
    """A Keras model."""

    node: ast.AST | None = None
    """The call that built it, where it was seen."""
    loop: Loop | None = None
    """The loop it was built in."""
    strategy: Strategy | None = None
    gpus: int | None = None
    """Replicas of the old `multi_gpu_model`."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A `tf.distribute` strategy."""

    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """An eager tensor."""

    is_scalar: bool = False
    of_dataset: Dataset | None = None
    """The dataset whose element it is."""
    is_input: bool = False
    """Whether it is the element's first part."""
    batch_size: int | None = None
    layout: Layout | None = None
    is_picture: bool = False
    """Whether it was decoded from a file of an image."""
    is_numpy: bool = False
    """Whether `.numpy()` made an array of it."""


@dataclass(frozen=True, slots=True)
class Symbolic:
    """What `keras.Input` and the layers called on it give."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Any other object of interest, by a word: `loss`, `layer`, `range`, `scope`, `shape`."""

    kind: str
    item: Value = None
    """What it is made of, or gives when it is looped over."""
    source: Value = None
    """What a loop over it goes through."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of files, rows of a table: one for each sample, and nobody knows how many."""

    kind: str = "files"
    """`files`, `walk` for `os.walk`, `table`, `rows`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What `tf.shape` gives; `is_share` once it was divided by a number of parts."""

    is_share: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A tuple whose parts are known."""

    parts: tuple[Value, ...]
    count: int = field(default=0, compare=False)
    """How many values are inside, those inside of others included."""

    @staticmethod
    def of(parts: Iterable[Value]) -> Items | None:
        """Return a tuple of some values; nothing is known of one that holds too many."""
        known = tuple(parts)
        count = sum(map(_count, known))
        return Items(known, count) if count <= MAX_PARTS else None


@dataclass(slots=True, eq=False)
class Sequence:
    """A Python list that grows."""

    depth: int
    """How many loops it was made in."""
    item: Value = None
    pictures: ast.AST | None = None
    """Where pictures were appended to it."""
    is_whole: bool = False
    """Whether it has an element for each sample."""
    told: tuple[tuple[ast.AST, Layout, str | None], ...] = ()
    """Where it gets the image of each file: told as soon as the list is put to use."""
    parts: tuple[Value, ...] = ()
    """The elements it was written with."""


@dataclass(slots=True, eq=False)
class Picture:
    """One picture, read from a file."""

    layout: Layout
    node: ast.AST
    widened: ast.AST | None = None
    """Where bytes became float64."""


@dataclass(slots=True, eq=False)
class Function:
    """A function of the file."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Any
    is_traced: bool = False
    """Whether `tf.function` wraps it."""
    has_signature: bool = False
    owner: Instance | None = None
    is_walked: bool = False
    result: Value = None
    is_foreign: bool = False
    """Whether another file of the project has it."""
    _yields: bool | None = None
    _trains: bool | None = None
    _parameters: frozenset[str] | None = None

    @property
    def parameters(self) -> frozenset[str]:
        """The names of what it is given by place."""
        if self._parameters is None:
            arguments = self.node.args
            names = (item.arg for item in (*arguments.posonlyargs, *arguments.args))
            self._parameters = frozenset(names)
        return self._parameters

    @property
    def yields(self) -> bool:
        """Whether it hands out one thing after the other."""
        if self._yields is None:
            self._yields = any(
                isinstance(node, (ast.Yield, ast.YieldFrom))
                for node in islice(ast.walk(self.node), MAX_LOOKED_AT)
            )
        return self._yields

    @property
    def trains(self) -> bool:
        """Whether a model is trained in it, so that its names live as long."""
        if self._trains is None:
            self._trains = any(
                isinstance(node, ast.Attribute) and node.attr in ("fit", "fit_generator")
                for node in islice(ast.walk(self.node), MAX_LOOKED_AT)
            )
        return self._trains


@dataclass(slots=True, eq=False)
class Class:
    """A class of the file."""

    node: ast.ClassDef
    scope: Any
    base: str | None
    """`model`, `layer`, `sequence`; None for any other."""
    methods: dict[str, Function] = field(default_factory=dict)
    instance: Instance | None = None
    is_walked: bool = False


@dataclass(slots=True, eq=False)
class Instance:
    """An object of a class of the file; all of one class are taken as one."""

    of: Class
    attributes: dict[str, Value] = field(default_factory=dict)


def _count(value: Value) -> int:
    inside = value.item if isinstance(value, Maker) else value
    return 1 + inside.count if isinstance(inside, Items) else 1


Value = (
    Ref | Other | Number | Text | Length | Listing | Dataset | Array | Model | Strategy | Tensor
    | Symbolic | Maker | Shape | Items | Sequence | Picture | Function | Class | Instance | None
)  # fmt: skip


def joined(one: Value, other: Value) -> Value:
    """Return what is known of a value that is one or the other, depending on a branch."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    if isinstance(one, Dataset) and isinstance(other, Dataset):
        same = one.is_batched == other.is_batched
        return Dataset(
            is_batched=one.is_batched if same else None,
            batch=one.batch if same else None,
            batch_size=one.batch_size if one.batch_size == other.batch_size else None,
            drops=one.drops or other.drops,
            content=one.content if one.content == other.content else None,
            layout=one.layout if one.layout == other.layout else None,
            count=one.count if one.count == other.count else None,
            is_pictures=one.is_pictures and other.is_pictures,
        )
    if isinstance(one, Array) and isinstance(other, Array):
        return Array(
            dtype=one.dtype if one.dtype == other.dtype else None,
            load=one.load or other.load,
            is_mapped=one.is_mapped or other.is_mapped,
            is_packed=one.is_packed or other.is_packed,
            pictures=one.pictures or other.pictures,
            size=one.size or other.size,
            is_whole=one.is_whole or other.is_whole,
            is_hdf5=one.is_hdf5 or other.is_hdf5,
            dims=one.dims if one.dims == other.dims else None,
            count=one.count if one.count == other.count else None,
            is_filled=one.is_filled or other.is_filled,
        )
    if isinstance(one, Model) and isinstance(other, Model):
        return Model(strategy=one.strategy or other.strategy)
    return None
