"""A model that is named, built and traced here, and estimated at any batch size.

In a process of its own, because the file may be a stranger's: what building it takes is capped.
Its weights take no memory (`model/reserve.py`), so it may be larger than this machine.
"""

from __future__ import annotations

import contextlib
import gc
import resource
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.estimate.keras_model import Traced, trace_step
from oomdoctor.estimate.simulation import Device, Simulation
from oomdoctor.estimate.step import estimate
from oomdoctor.facts import Estimate
from oomdoctor.model.build import build_model, forget_names
from oomdoctor.model.messages import first_line, is_out_of_memory
from oomdoctor.model.modules import find_modules_in, load_callable
from oomdoctor.model.reserve import reserving
from oomdoctor.model.samples import Samples, read_samples
from oomdoctor.model.spec import ModelSpec
from oomdoctor.trace.scaled import ScaledStep
from oomdoctor.worker.gradient_exchange import exchange_gradients
from oomdoctor.worker.messages import Estimated, EstimateStep
from oomdoctor.worker.recording import SIZES, record_step
from oomdoctor.xla.cards import Card
from oomdoctor.xla.lowering import Lowered, Lowering, lowering
from oomdoctor.xla.on_card import estimate_on_card, estimate_on_cards
from oomdoctor.xla.program import keeping_auto


class Estimates:
    """Keeps the step that was traced last, which serves every batch size and card."""

    def __init__(self) -> None:
        self._key: tuple[ModelSpec, str] | None = None
        self._model: Any = None
        self._traced: Traced | None = None
        self._notes: list[str] = []
        self._open = contextlib.ExitStack()
        self._lowering: Lowering | None = None
        self._lowered: Lowered | None = None
        self._simulated: dict[Any, Estimate] = {}
        self._on_cards: dict[Any, tuple[Estimate, ...]] = {}
        self._scaled: ScaledStep | None = None
        self._unverified: str | None = None

    def estimate(self, request: EstimateStep) -> Estimated:
        """Return the estimate of one batch size."""
        traced = self._trace(request)
        # Without a card nobody knows which program it will be.
        jit = request.jit == "on" if request.card is None else None
        key = (request.batch_size, request.threads, jit, request.verify)
        scaled = self._record(request, traced) if request.verify else None
        if key not in self._simulated:
            device: Device = "cpu" if request.card is None else "gpu"
            simulation = Simulation(traced, threads=request.threads, device=device)
            if scaled is not None:
                scratch = device == "cpu"
                simulation.recorded = lambda size: scaled.run(size, scratch=scratch)
                simulation.recorded_sizes = SIZES
            self._simulated[key] = estimate(simulation, request.batch_size, jit=jit)
        found = self._simulated[key]
        if request.card is not None:
            found = self._on_card(request, request.card, found)
        unverified = (self._unverified,) if request.verify and self._unverified else ()
        notes = (*self._notes, *found.notes, *unverified)
        found = replace(found, notes=tuple(dict.fromkeys(notes)))
        return Estimated(found, traced.workload)

    def _on_card(self, request: EstimateStep, card: Card, executor: Estimate) -> Estimate:
        """Return the estimate on a card; cards that are asked about together share compilations."""
        how: Any = {
            "lower": lambda: self._lower(request),
            "jit": request.jit,
            "plugin": request.plugin,
            "missing": request.missing,
        }
        if card not in request.cards:
            return estimate_on_card(self._model, card, executor, brief=request.brief, **how)
        key = (request.batch_size, request.threads, request.jit, request.cards, request.verify)
        if key not in self._on_cards:
            self._on_cards[key] = estimate_on_cards(self._model, request.cards, executor, **how)
        return self._on_cards[key][request.cards.index(card)]

    def _trace(self, request: EstimateStep) -> Traced:
        key = (request.spec, request.kind)
        if self._traced is None or self._key != key:
            cap_memory(request.ram_bytes)
            forget_names()
            self._open.close()
            self._lowering = self._lowered = self._model = self._traced = None
            self._simulated = {}
            self._on_cards = {}
            gc.collect()  # graphs of the model before; they go round in circles
            self._key = None  # what fails half-way is built again for the next request
            self._scaled = self._unverified = None
            with keeping_auto():
                self._model, self._traced, self._notes = _built(request)
            self._key = key
        return self._traced

    def _record(self, request: EstimateStep, traced: Traced) -> ScaledStep | None:
        """Return a step that was run, or None where none can be."""
        if self._scaled is None and self._unverified is None:
            try:
                self._scaled = record_step(
                    self._model, request.spec, request.kind, traced.variables
                )
            except InputError as error:
                self._unverified = f"The estimate was not verified. {error}"
        return self._scaled

    def _lower(self, request: EstimateStep) -> Lowered:
        """Return the step for XLA; the same for every card."""
        if self._lowering is None:
            traced = lowering(self._model, kind=request.kind, spec=request.spec)
            with reserving():  # an optimizer's state is made for it
                self._lowering = self._open.enter_context(traced)
        if self._lowered is None or self._lowered.batch_size != request.batch_size:
            self._lowered = self._lowering.at(request.batch_size)
        return self._lowered


def _built(request: EstimateStep) -> tuple[Any, Traced, list[str]]:
    """Return a model, its traced step and notes; its weights take memory only if they must."""
    with reserving() as reserved:
        try:
            return _build_and_trace(request)
        except UsageError:
            raise
        except Exception as error:  # the user's code may do anything with weights
            if not reserved.bytes or is_out_of_memory(error):
                raise
            why = f"{type(error).__name__}: {first_line(error)}"
    forget_names()
    model, traced, notes = _build_and_trace(request)
    note = f"The model was built with its weights in memory: without them it fails ({why})."
    return model, traced, [*notes, note]


def _build_and_trace(request: EstimateStep) -> tuple[Any, Traced, list[str]]:
    model, notes = build_model(request.spec)
    if request.spec.replicas > 1 and not exchange_gradients(model):
        notes = [*notes, "The packing of gradients is not included: this optimizer packs none."]
    return model, trace_step(model, kind=request.kind, spec=request.spec), notes


def read_function(name: str, folders: tuple[str, ...]) -> Samples:
    """Return what the data says of its samples that the user's function returns."""
    find_modules_in(folders)
    function = load_callable(name)
    if not callable(function):
        return read_samples(function)
    found = function()
    # A generator is read by calling the function again, so that it begins at the beginning.
    return read_samples(function if isinstance(found, Iterator) else found)


def cap_memory(limit_bytes: int | None) -> None:
    """Let this process take no more memory of its own than this."""
    if limit_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            limit_bytes = min(limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))
