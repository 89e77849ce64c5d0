"""The process that owns TensorFlow: reads requests, carries them out, writes answers.

Started by `runner/process.py`, which sets the environment first: TensorFlow reads it while it is
imported. Requests and answers are lines of JSON on two file descriptors of their own, so that
what the user's code prints cannot disturb them. The worker ends when its parent does.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

import msgspec

from oomdoctor.errors import OomDoctorError, UsageError
from oomdoctor.isolation import end_with_parent, volunteer_for_the_oom_killer
from oomdoctor.model.build import build_model
from oomdoctor.model.code_digest import digest_of_model
from oomdoctor.model.messages import is_out_of_memory, oom_line
from oomdoctor.worker.devices import prepare_devices
from oomdoctor.worker.estimating import Estimates, cap_memory, read_function
from oomdoctor.worker.fit import Trainer
from oomdoctor.worker.gradient_exchange import exchange_gradients
from oomdoctor.worker.initial_guess import guess_growth
from oomdoctor.worker.memory_limit import MemoryLimit
from oomdoctor.worker.messages import (
    Answer,
    DataRead,
    Digested,
    DigestModel,
    EstimateStep,
    GuessSize,
    Load,
    Loaded,
    OutOfMemory,
    Ran,
    ReadData,
    Refused,
    Request,
)


class Server:
    """What the worker keeps between requests."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.estimates = Estimates()

    def answer(self, request: Request) -> Answer:
        """Carry out one request; what is wrong with the user's model is an answer."""
        try:
            if isinstance(request, Load):
                self.trainer = _load(request)
                return Loaded()
            if isinstance(request, EstimateStep):
                return self.estimates.estimate(request)
            if isinstance(request, ReadData):
                return DataRead(read_function(request.name, request.sys_path))
            assert self.trainer is not None
            if isinstance(request, GuessSize):
                trainer = self.trainer
                return guess_growth(trainer.model, trainer.spec, request.limit_bytes)
            if isinstance(request, DigestModel):
                return Digested(digest_of_model(self.trainer.model))
            return Ran(self.trainer.fit(request))
        except OomDoctorError as error:
            return Refused(str(error), isinstance(error, UsageError))
        except Exception as error:  # the user's code may raise anything
            if is_out_of_memory(error):
                return OutOfMemory(oom_line(error))
            return Refused(f"{type(error).__name__}: {error}"[:2000], is_usage=False)


def _load(request: Load) -> Trainer:
    pool_bytes = request.limit_bytes
    if pool_bytes is not None:
        pool_bytes += request.spare_bytes
    regions = prepare_devices(pool_bytes)
    if request.ram_bytes is not None:
        cap_memory(request.ram_bytes + sum(size for _, size in regions))
    limit = MemoryLimit(regions if request.spare_bytes else ())
    model, notes = build_model(request.spec)
    if request.spec.replicas > 1:
        how = "with" if exchange_gradients(model) else "without"
        notes.append(
            f"One of {request.spec.replicas} replicas was measured, {how} the packing of "
            "gradients for their exchange; what NCCL itself takes is not included."
        )
    return Trainer(model, request.spec, limit, notes)


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed.

    Args:
        arguments: The descriptors to read and to write, and the parent's process id.
    """
    reading, writing, parent = map(int, arguments)
    end_with_parent(parent)
    volunteer_for_the_oom_killer()
    requests: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                requests.put(line)
        os._exit(0)  # threads of TensorFlow would keep an orderly exit waiting

    threading.Thread(target=read, daemon=True).start()
    server = Server()
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Request)
    with os.fdopen(writing, "wb", buffering=0) as answers:
        while True:
            answer = server.answer(decoder.decode(requests.get()))
            sys.stdout.flush()
            answers.write(msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
