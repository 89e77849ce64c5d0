"""Will the model train, and with which batch?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from oomdoctor._optional import require
from oomdoctor.api.conclude import must_be_positive
from oomdoctor.api.feeding import fields_of_spec, read_feed, split_feed
from oomdoctor.api.machine import probe_machine
from oomdoctor.errors import InputError, UsageError
from oomdoctor.facts import Estimate, Gpu, Machine, Workload
from oomdoctor.model.spec import ModelSpec

if TYPE_CHECKING:
    from oomdoctor.runner.estimator import Estimator
    from oomdoctor.xla.cards import Card
    from oomdoctor.xla.program import Jit

BUILDING_SHARE = 0.8
"""Part of the free RAM that building a model may take."""

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


def estimate_memory(
    model: Any,
    *,
    batch_size: int = 32,
    kind: str = "train",
    input_shape: Any = None,
    data: Any = None,
    batch: Any = None,
    optimizer: str | None = None,
    loss: str | None = None,
    precision: str | None = None,
    jit: Jit | bool = "auto",
    machine: str | Machine | None = None,
    verify: bool = False,
    replicas: int = 1,
) -> Estimate:
    """Return the peak memory of one step, predicted without running it.

    For a machine with a GPU it is the program that Keras would run there: XLA's, compiled for that
    card, or TensorFlow's own executor. Without one the step is traced to a graph, and the executor
    and its allocator are simulated over it.

    Example:
        >>> import oomdoctor
        >>> estimate = oomdoctor.estimate_memory(model, batch_size=32)  # doctest: +SKIP
        >>> estimate.largest_batch(6 * 2**30)  # doctest: +SKIP
        >>> oomdoctor.estimate_memory(model, machine="colab-t4")  # doctest: +SKIP

    Args:
        model: A Keras model, a `.keras` file, or `module:callable`. A live model is only read.
        batch_size: Samples per batch.
        kind: `train`, `evaluate` or `predict`.
        input_shape: One sample, if the model leaves dimensions open or another is wanted, such as
            `(224, 224, 3)`; `{"ids": (512,)}` if the inputs have names.
        data: What `fit` will be given, as for `suggest_batch_size`: its largest samples count.
        batch: The same in words: `tf.TensorSpec`s as `fit` would be fed, nested like its data,
            such as `(x, y)`.
        optimizer: In place of the model's own, or for a model that is not compiled.
        loss: The same for the loss.
        precision: A dtype policy such as `mixed_float16`.
        jit: Whether XLA compiles the step on a GPU: `auto` decides as Keras would; `on` and
            `off`, or True and False, decide it.
        machine: Where it will run: a catalogue entry such as `colab-t4`, or what `probe_machine`
            returns. None simulates the executor on a CPU.
        verify: Run a step of a small batch in a process of its own, and scale what it allocates to
            the batch size. Takes a few seconds more, and is nearer to the truth.
        replicas: GPUs that share each batch, as under `MirroredStrategy`. The estimate is that of
            one of them.
    """
    must_be_positive(replicas=replicas)
    target = None if machine is None else probe_machine(machine=machine)
    how_trained = {
        "input_shape": input_shape,
        "data": data,
        "batch": batch,
        "optimizer": optimizer,
        "loss": loss,
        "precision": precision,
        "replicas": replicas,
    }
    with estimating(model, kind=kind, apart=verify, **how_trained) as estimate:
        return estimate(batch_size, jit=jit_of(jit), machine=target, verify=verify)[0]


@dataclass(frozen=True)
class Estimating:
    """Estimates one model at any batch size."""

    step: Callable[..., tuple[Estimate, Workload]]
    """Takes what `Estimator.estimate` does, from the size on."""
    notes: tuple[str, ...] = ()
    """What was found about the data, or assumed about the model."""
    replicas: int = 1
    """GPUs that share each batch; one of them is estimated."""

    def __call__(
        self,
        batch_size: int,
        *,
        jit: Jit = "auto",
        threads: int | None = None,
        machine: Machine | None = None,
        beside: Sequence[Machine] = (),
        brief: bool = False,
        verify: bool = False,
    ) -> tuple[Estimate, Workload]:
        """Return the estimate of a step, and what is known of the model.

        Machines that are named together, in `beside`, share compilations.
        """
        must_be_positive(batch_size=batch_size)
        card, note = _card_of(machine)
        cards = _cards_of(beside)
        share, program = -(-batch_size // self.replicas), jit
        if self.replicas > 1 and jit == "auto":
            program = "off"  # as Keras does under tf.distribute
        found, workload = self.step(
            share,
            jit=program,
            threads=threads,
            card=card,
            cards=cards,
            brief=brief,
            verify=verify,
        )
        found = _noted(found, note)
        found = replace(found, notes=(*self.notes, *found.notes))
        if self.replicas > 1:
            found = _of_one_replica(found, batch_size, self.replicas, decided=program != jit)
        return found, replace(workload, batch_size=batch_size, replicas=self.replicas)


def _of_one_replica(
    estimate: Estimate, batch_size: int, replicas: int, *, decided: bool
) -> Estimate:
    """Say what is estimated, and why it is not XLA's program if that was not asked for."""
    note = (
        f"One of {replicas} replicas, with {estimate.batch_size} of the {batch_size} samples of a "
        "batch. Each holds all weights, all optimizer state and a packed copy of all gradients. "
        "The buffers of NCCL are not included."
    )
    reason = estimate.reason
    if decided and reason is not None:
        reason = "Keras does not use XLA for a model under tf.distribute."
    return replace(estimate, reason=reason, notes=(note, *estimate.notes))


@contextmanager
def estimating(
    model: Any,
    *,
    kind: str,
    folder: str | None = None,
    estimator: Estimator | None = None,
    apart: bool = False,
    **how_trained: Any,
) -> Iterator[Estimating]:
    """Give what estimates a model at any batch size, from one trace.

    A live model is traced here. One that is named is built and traced in a process of its own.

    Args:
        model: A Keras model, a `.keras` file, or `module:callable`.
        kind: `train`, `evaluate` or `predict`.
        folder: Where modules are looked for first; None is the current folder.
        estimator: The process to use, if there is one already.
        apart: Whether a copy of a live model is estimated in a process of its own, where it may
            also be trained.
        **how_trained: As for `estimate_memory`; None is the model's own.
    """
    precision = how_trained.get("precision")
    if precision is not None and precision not in PRECISIONS:
        raise UsageError(f"{precision!r} is not a precision: use one of {', '.join(PRECISIONS)}.")
    given, fed = split_feed(how_trained)
    replicas = given.get("replicas", 1)
    if replicas == 1:
        given.pop("replicas", None)
    _check_effects(kind, given)
    require("tensorflow", extra="tensorflow", purpose="to trace a model")
    if not isinstance(model, (str, os.PathLike)) and not apart:
        samples = read_feed(**fed)
        fields = fields_of_spec(samples, fed["input_shape"])
        live = _of_live_model(model, kind, given, fields)
        notes = (*(samples.notes if samples else ()), *live.notes)
        yield replace(live, notes=notes, replicas=replicas)
        return
    from oomdoctor.runner.estimator import Estimator

    with nullcontext(estimator) if estimator else Estimator(ram_bytes=ram_to_build_in()) as used:
        samples = read_feed(**fed, estimator=used)
        spec = spec_of(model, **given, **fields_of_spec(samples, fed["input_shape"]))
        if folder is not None and spec.sys_path:
            spec = replace(spec, sys_path=(folder, *spec.sys_path))
        notes = samples.notes if samples else ()
        yield Estimating(partial(used.estimate, spec, kind=kind), notes, replicas)


def _check_effects(kind: str, given: dict[str, Any]) -> None:
    """Refuse what would be ignored."""
    idle = {
        "evaluate": ("optimizer", "replicas"),
        "predict": ("optimizer", "loss", "replicas"),
    }.get(kind, ())
    for name in idle:
        if name in given:
            raise UsageError(
                f"{name}= (on the command line: --{name}) has no effect with kind={kind}: leave it "
                "out."
            )


def _of_live_model(
    model: Any, kind: str, how_trained: dict[str, Any], fed: dict[str, Any]
) -> Estimating:
    """Return what estimates a model of this process; it is only read.

    Args:
        model: The model.
        kind: `train`, `evaluate` or `predict`.
        how_trained: What replaces the model's own.
        fed: The fields of its `ModelSpec` that say what it is fed.
    """
    from oomdoctor.estimate.keras_model import trace_step
    from oomdoctor.estimate.simulation import Simulation
    from oomdoctor.estimate.step import estimate as simulate
    from oomdoctor.model.build import build_model, settings_kept
    from oomdoctor.model.reserve import reserving
    from oomdoctor.worker.gradient_exchange import exchange_gradients
    from oomdoctor.xla.lowering import Lowered, lowering
    from oomdoctor.xla.on_card import estimate_on_card, estimate_on_cards
    from oomdoctor.xla.plugin import plugin_or_reason

    must_copy = bool(how_trained) or "input_shape" in fed or not model.compiled
    spec, notes, traced = ModelSpec(source=model.name, **fed), list[str](), None
    if must_copy or not all(layer.built for layer in model._flatten_layers()):
        # A copy is traced, whose layers can be built: the live model is left as it is.
        try:
            with settings_kept(), reserving():
                of_copy = spec_of(model, **how_trained, **fed)
                copy, notes = build_model(of_copy)
                if of_copy.replicas > 1:
                    exchange_gradients(copy)
                traced = trace_step(copy, kind=kind, spec=of_copy)
                model, spec = copy, of_copy
        except InputError:
            if must_copy:
                raise
    if traced is None:
        traced = trace_step(model, kind=kind, spec=spec)

    shared: dict[Any, tuple[Estimate, ...]] = {}

    def estimate(
        batch_size: int,
        *,
        jit: Jit,
        threads: int | None,
        card: Card | None,
        cards: tuple[Card, ...],
        brief: bool,
        verify: bool,
    ) -> tuple[Estimate, Workload]:
        assert not verify, "a live model is not trained"
        simulation = Simulation(traced, threads=threads, device="gpu" if card else "cpu")
        if card is None:
            return simulate(simulation, batch_size, jit=jit == "on"), traced.workload

        def lower() -> Lowered:
            with settings_kept(), lowering(model, kind=kind, spec=spec) as step:
                return step.at(batch_size)

        plugin, missing = plugin_or_reason()
        executor = simulate(simulation, batch_size, jit=None)
        how: Any = {"lower": lower, "jit": jit, "plugin": plugin, "missing": missing}
        if card not in cards:
            found = estimate_on_card(model, card, executor, brief=brief, **how)
            return found, traced.workload
        key = (batch_size, threads, jit, cards)
        if key not in shared:
            shared[key] = estimate_on_cards(model, cards, executor, **how)
        return shared[key][cards.index(card)], traced.workload

    return Estimating(estimate, tuple(notes))


def jit_of(value: Any) -> Jit:
    """Return whether XLA compiles the step, as a person says it.

    Example:
        >>> jit_of("auto"), jit_of(True), jit_of(False)
        ('auto', 'on', 'off')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if value not in ("auto", "on", "off"):
        raise UsageError(f"{value!r} is not one of auto, on, off.")
    return cast("Jit", value)


def _card_of(machine: Machine | None) -> tuple[Card | None, str | None]:
    """Return the card that decides, the fullest, and a sentence where another stands in for it."""
    if machine is None or not machine.gpus:
        return None, None
    from oomdoctor.xla.cards import card_of

    def free(gpu: Gpu) -> int:
        return gpu.usable_bytes or 0

    return card_of(min(machine.gpus, key=free))


def _cards_of(machines: Sequence[Machine]) -> tuple[Card, ...]:
    """Return the cards that decide on several machines, each once; a single one is none."""
    found = (_card_of(machine)[0] for machine in machines)
    cards = tuple(dict.fromkeys(card for card in found if card is not None))
    return cards if len(cards) > 1 else ()


def _noted(estimate: Estimate, note: str | None) -> Estimate:
    """Add which card stood in, where one was compiled for."""
    if note is None or estimate.device is None:
        return estimate
    return replace(estimate, notes=(note, *estimate.notes))


def ram_to_build_in() -> int | None:
    """Return what building a model may take: most of the RAM that is free."""
    free = probe_machine().ram.available_bytes
    return None if free is None else int(free * BUILDING_SHARE)


def spec_of(model: Any, **how_trained: Any) -> ModelSpec:
    """Return how another process rebuilds a model; arguments that are None are left out."""
    given = {name: value for name, value in how_trained.items() if value is not None}
    if isinstance(model, (str, os.PathLike)):
        source = os.fspath(model)
        # A file brings no code, and nothing beside it may run.
        folders = () if source.endswith(".keras") else (os.getcwd(),)
        return ModelSpec(source=source, sys_path=folders, **given)
    from oomdoctor.model.live import spec_of_model

    return spec_of_model(model, **given)
