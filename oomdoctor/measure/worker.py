"""The process that owns TensorFlow: reads requests, runs trials, writes answers.

Started by `runner.py`, which sets the environment first: TensorFlow reads it while it is
imported. Requests and answers are lines of JSON on two file descriptors of their own, so that
what the user's code prints cannot disturb them. The worker ends when its parent does.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import sys
import threading
from collections.abc import Iterable
from typing import Any

import msgspec

from oomdoctor.errors import InputError, OomDoctorError, UsageError
from oomdoctor.measure.ballast import Ballast
from oomdoctor.measure.batch import has_custom_step
from oomdoctor.measure.build import build_model
from oomdoctor.measure.child import die_with_parent, leave, volunteer_for_the_oom_killer
from oomdoctor.measure.crowd import has_turns
from oomdoctor.measure.devices import prepare_devices
from oomdoctor.measure.exchange import exchange_gradients
from oomdoctor.measure.foresee import Recorded, foresee
from oomdoctor.measure.luck import Orders
from oomdoctor.measure.own_code import digest_of_model
from oomdoctor.measure.prior import prior_of
from oomdoctor.measure.redraw import DRAWS, draw, draws
from oomdoctor.measure.settle import Start, brought_into, settle, start_of
from oomdoctor.measure.spec import ModelSpec, Trial
from oomdoctor.measure.step import Step
from oomdoctor.measure.trial import Recorder, oom_line, run_trial, worse

MORE_FORESEEN = 10
"""So many steps are played after the recorded ones where no two are alike (`prolong.py`)."""

LOOP_DRAWS, OTHER_DRAWS = 3, 2
"""In so many new orders a size is judged where the step has a loop (`redraw.py`), and in so many is
seen how much more than a recorded step it may take."""

FIRST_STEPS = 3
"""In other draws up to so many small steps come first: each moves variables elsewhere."""


class Request(msgspec.Struct):
    """One line from the runner. `spec` comes first and once; then trials and questions."""

    spec: ModelSpec | None = None
    limit_bytes: int | None = None
    spare_bytes: int = 0
    threads: int = 1
    folder: str | None = None
    batch_size: int = 0
    steps: int = 3
    more_steps: int = 0
    trace: bool = False
    kind: str = "train"
    record: bool = False
    batches_ahead: int = 0
    foresee: bool = False
    describe: bool = False
    warm: bool = False
    settled: bool = False
    thorough: bool = False
    last: int = 0
    lowest: int = 1
    highest: int = 1


class Serving:
    """What the worker keeps between requests."""

    def __init__(self) -> None:
        self.spec = ModelSpec("")
        self.folder: str | None = None
        self.model: Any = None
        self.notes: list[str] = []
        self.steps: dict[str, Step] = {}
        self.regions: list[tuple[int, int]] = []
        self.ballast = Ballast()
        self.recorded: list[Recorded] = []
        self.orders: Orders | None = None
        self.starts: list[Start] = []
        """What variables hold before the first step."""
        self.drawn = DRAWS
        """The last new draw; the first ones are kept for sizes that are run in the same again."""
        self.unlucky = 0
        """The draw in which the last size failed that did."""

    def answer(self, request: Request) -> dict[str, Any]:
        """Return the answer to one request; what is wrong with the user's model is an answer."""
        try:
            if request.spec is not None:
                self._load(request)
                return {}
            if request.describe:
                return {"digest": digest_of_model(self.model)}
            if request.foresee:
                return {"largest": self._foresee(request)}
            if not request.batch_size:
                return {"prior": self._started(request)}
            return {"trial": self._trial(request)}
        except OomDoctorError as error:
            return {"error": str(error), "usage": isinstance(error, UsageError)}
        except Exception as error:  # the user's code may raise anything
            if type(error).__name__ == "ResourceExhaustedError":
                return {"oom": oom_line(error)}
            return {"error": f"{type(error).__name__}: {error}"[:2000], "usage": False}

    def _load(self, request: Request) -> None:
        assert request.spec is not None
        self.spec, self.folder = request.spec, request.folder
        pool_bytes = request.limit_bytes
        if pool_bytes is not None:
            pool_bytes += request.spare_bytes
        self.regions = prepare_devices(pool_bytes, request.threads)
        if request.spare_bytes and self.regions:
            self.ballast = Ballast(self.regions)
        draw(0)  # before anything runs: what was prepared under other settings is not found again
        self.model, self.notes = build_model(request.spec)
        if request.spec.replicas > 1:
            is_packed = exchange_gradients(self.model)
            how = "with" if is_packed else "without"
            self.notes.append(
                f"One of {request.spec.replicas} replicas was measured, {how} the packing of "
                "gradients for their exchange; what NCCL itself takes is not included."
            )

    def _step(self, kind: str) -> Step:
        if kind not in self.steps:
            step = Step(self.model, self.spec, kind, self.regions)
            step.notes[:0] = self.notes
            if self.regions and not self.starts:
                self.starts = brought_into(self.regions, start_of(step.function(1)))
            self.steps[kind] = step
        return self.steps[kind]

    def _started(self, request: Request) -> dict[str, int] | None:
        """Trace the step, and return what the estimate says of it where a limit is given."""
        step = self._step(request.kind)
        # TensorFlow optimizes the graph without Python, so the estimate can be made meanwhile.
        warming = threading.Thread(target=self._warm, args=(step,))
        if request.warm:
            warming.start()
        try:
            limit_bytes = request.limit_bytes
            prior = None if limit_bytes is None else prior_of(step, limit_bytes)
            if prior is None:
                return None
            self.orders = prior.orders
            return {"fixed_bytes": prior.fixed_bytes, "sample_bytes": prior.sample_bytes}
        finally:
            if request.warm:
                warming.join()
            gc.collect()
            gc.freeze()  # the graph stays; each trial would look through all of it again

    def _warm(self, step: Step) -> None:
        """Run one sample: before its first step TensorFlow optimizes the graph, for seconds."""
        with contextlib.suppress(Exception):  # a size that the model may not take
            run_trial(step, 1, 1, trace=False, folder=self.folder)

    def _trial(self, request: Request) -> Any:
        share = -(-request.batch_size // self.spec.replicas)
        step = self._step(request.kind)
        recorder = Recorder() if request.record and self.regions else None
        trial = None
        for number, first in self._orders(step, request, share):
            draw(number)
            if request.settled and self.regions:
                settle(self.starts, self.regions)
            found = self._run(step, request, share, number, first, recorder)
            trial = found if trial is None else worse(trial, found)
            if trial.outcome != "fits":
                self.unlucky = number
                break
        draw(0)
        assert trial is not None
        if recorder is not None and trial.outcome == "fits":
            assert trial.first_step_peak_bytes is not None
            peaks = [trial.first_step_peak_bytes, *trial.step_peaks]
            elsewhere = self._peak_elsewhere(step, request, share) if request.more_steps else None
            self.recorded.append(recorder.recorded(share, peaks, elsewhere))
        return trial

    def _orders(self, step: Step, request: Request, share: int) -> list[tuple[int, range]]:
        """Return the draws to run a size in, each with the small steps that come before it."""
        if not request.settled:
            return [(0, range(0))]
        if self.regions and step.has_loop(share):
            return self._new_orders(DRAWS if request.thorough else LOOP_DRAWS)
        numbers = draws(self.unlucky) if request.thorough else [0]
        return [(number, range(1, 2 + number % FIRST_STEPS)) for number in numbers]

    def _new_orders(self, count: int) -> list[tuple[int, range]]:
        """Return draws that no step has run in: every op counts as expensive again."""
        first = self.drawn + 1
        self.drawn += count
        # As in `fit`, which begins with a whole batch, and after a step on one sample.
        return [(first + index, range(1, 1 + index % 2)) for index in range(count)]

    def _peak_elsewhere(self, step: Step, request: Request, share: int) -> int | None:
        """Return the highest peak in other orders, for a loop, which recording itself changes.

        What is recorded takes longer, so ops that would count as cheap do not.
        """
        if not step.has_loop(share):
            return None
        plain = msgspec.structs.replace(request, record=False, settled=True)
        peaks = []
        for number, _ in self._new_orders(OTHER_DRAWS):
            draw(number)
            settle(self.starts, self.regions)
            trial = self._run(step, plain, share, number, (), None)
            peaks += [trial.first_step_peak_bytes or 0, *trial.step_peaks]
        draw(0)
        return max(peaks) or None

    def _run(
        self,
        step: Step,
        request: Request,
        share: int,
        number: int,
        first: Iterable[int],
        recorder: Recorder | None,
    ) -> Trial:
        return run_trial(
            step,
            share,
            request.steps,
            request.trace,
            self.folder,
            limit_bytes=request.limit_bytes,
            ballast=self.ballast,
            batches_ahead=request.batches_ahead,
            first=first,
            # Where there are other draws, those tell more than further steps.
            more_steps=0 if number or request.thorough else request.more_steps,
            last=-(-request.last // self.spec.replicas),
            validation=self._validation() if request.settled else None,
            anew=request.settled or request.record,
            in_crowds=(request.settled or request.record) and has_turns(),
            recorder=recorder,
        )

    def _validation(self) -> Step | None:
        """Return the model's step for validation, where it is not Keras's.

        Keras's is the first half of a train step, which frees what it has used: it takes less.
        """
        if not has_custom_step(self.model, "evaluate"):
            return None
        with contextlib.suppress(InputError):  # who does not validate needs no such step
            return self._step("evaluate")
        return None

    def _foresee(self, request: Request) -> int | None:
        """Return the largest size that seems to fit, as far as what was recorded can tell."""
        sizes = sorted({recorded.batch_size for recorded in self.recorded})
        if len(sizes) < 2 or request.limit_bytes is None:
            return None
        # The larger of them is nearer to what is looked for, and its order of ops too.
        main = next(r for r in self.recorded if r.batch_size == sizes[-1])
        other = next(r for r in self.recorded if r.batch_size == sizes[-2])
        replicas = self.spec.replicas
        has_loop = self._step("train").has_loop(main.batch_size)
        more_steps = MORE_FORESEEN if has_loop or has_turns() else 0
        found = foresee(main, other, self.regions, more_steps).largest(
            request.limit_bytes,
            lowest=-(-request.lowest // replicas),
            highest=min(request.highest // replicas, main.most_elsewhere(request.limit_bytes)),
            batches_ahead=request.batches_ahead,
            excess=self._excess(main),
        )
        return None if found is None else found * replicas

    def _excess(self, main: Recorded) -> float:
        """Return how many times as much as here a batch takes in an unlucky process."""
        if self.orders is None:
            return 1.0
        return self.orders.excess(main.batch_size, main.peak_bytes, main.held_bytes)


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed.

    Args:
        arguments: The descriptors to read and to write, the parent's process id, and the
            folder to remove at the end.
    """
    reading, writing, parent = (int(value) for value in arguments[:3])
    folder = arguments[3]
    die_with_parent(parent, folder)
    volunteer_for_the_oom_killer()
    requests: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                requests.put(line)
        leave(folder)

    threading.Thread(target=read, daemon=True).start()
    serving = Serving()
    decoder = msgspec.json.Decoder(Request)
    with os.fdopen(writing, "wb", buffering=0) as answers:
        while True:
            answer = serving.answer(decoder.decode(requests.get()))
            sys.stdout.flush()
            answers.write(msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
