"""A model as another process can rebuild it."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BATCH_SIZE = 2**20
"""No larger one is looked for."""

KINDS = ("train", "evaluate", "predict")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModelSpec:
    """What another process needs to rebuild a model. Values of weights are left out on purpose."""

    source: str
    """A `.keras` file, `module:callable`, or the name of a live model (then `config` is set)."""
    sys_path: tuple[str, ...] = ()
    """Put before the worker's own import path, so that the user's modules are found."""
    config: str | None = None
    """A live model's configuration as JSON, from `live.spec_of_model`."""
    objects: str | None = None
    """A live model's own classes and functions, pickled, in base64."""
    trainable: tuple[bool, ...] | None = None
    """Which layers of a live model are trainable, in the order Keras lists them."""
    vocabularies: tuple[int | None, ...] | None = None
    """How many words each layer of a live model looks up, in the same order; None for others."""
    policy: str | None = None
    """The global dtype policy of a live model's process, which inner layers are built with."""
    parameters: int | None = None
    trainable_parameters: int | None = None
    """Counts of a live model, to check the rebuilt one by."""
    input_shape: Shape | dict[str, Shape] | None = None
    """One sample, without the batch; by input name where there are several inputs."""
    input_dtype: str | None = None
    optimizer: str | None = None
    """Overrides the model's own; an uncompiled model without one gets `adam`."""
    loss: str | None = None
    precision: str | None = None
    """A Keras dtype policy, such as `mixed_float16`."""
    jit_compile: bool | None = None
    """None leaves it to Keras: XLA on a GPU, plain graph on a CPU."""
    replicas: int = 1
    """Devices a batch is split over; one of them is measured."""
    samples: str | None = None
    """The largest samples of the user's data, as JSON from `samples.read_samples`."""
    image_size: Shape | None = None
    """Of the user's images, for an input whose size is open."""
    data: str | None = None
    """`module:callable` that takes a batch size and returns the batch; None synthesises it."""

    @property
    def is_file(self) -> bool:
        """Whether it is a saved model, which may be a stranger's."""
        return self.config is None and self.source.endswith(".keras")
