"""Inside the limited process: trains what a test returns, and explains why it did not fit."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from oomdoctor.testing.explain import explained, read_end
from oomdoctor.testing.plugin import Limit, limit_of
from oomdoctor.units import MIB

STEPS = 2
"""The first step makes the optimizer's slots, the second is like all that follow."""


@dataclass(frozen=True)
class MemoryBudget:
    """What a test may take of TensorFlow's memory, and what it has taken."""

    limit_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The most that was held at once since the test began."""
        return _memory()["peak"]

    @property
    def used_bytes(self) -> int:
        """What is held now."""
        return _memory()["current"]


class Child:
    """The hooks of a pytest that runs one marked test under its limit."""

    def __init__(self, config: pytest.Config) -> None:
        from oomdoctor.isolation import end_with_parent, volunteer_for_the_oom_killer

        self.config = config
        self.batch_size: int | None = None
        """Known once a model is trained here; a test's own training has a batch of its own."""
        self.path = os.environ["OOMDOCTOR_FITS_MEMORY"]
        self.log = os.environ["OOMDOCTOR_LOG"]
        end_with_parent(int(os.environ["OOMDOCTOR_PARENT"]))
        volunteer_for_the_oom_killer()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Give TensorFlow its memory before fixtures take of it."""
        limit = limit_of(item)
        if limit is not None and importlib.util.find_spec("tensorflow") is not None:
            _prepare(limit)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Call a test and train the model that it returns."""
        limit = limit_of(pyfuncitem)
        if limit is None or inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        names = pyfuncitem._fixtureinfo.argnames
        returned = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        if returned is not None:
            self.batch_size = limit.batch_size
            _train(returned, limit)
        if "tensorflow" in sys.modules:
            pyfuncitem.user_properties.append(("peak_bytes", _memory()["peak"]))
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the diagnosis in the place of a traceback where memory ran out."""
        report = yield
        limit = limit_of(item)
        if limit is None or call.excinfo is None or not is_oom(call.excinfo.value):
            return report
        traceback = report.longreprtext
        told: Any = call.excinfo.value
        written = read_end(self.log)
        if "bfc_allocator" in written:  # the allocator's dump says more than the exception
            told = f"{written}\n{traceback}\n"
        report.longrepr = explained(told, limit, self.batch_size)
        report.sections.append(("The traceback", traceback))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand a report over to the process that asked."""
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(data, default=str) + "\n")


def is_oom(error: BaseException) -> bool:
    """Return whether an exception, or one that led to it, is TensorFlow's lack of memory."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        names = {kind.__name__ for kind in type(current).__mro__}
        if names & {"ResourceExhaustedError", "MemoryError"}:
            return True
        current = current.__cause__ or current.__context__
    return False


def _prepare(limit: Limit) -> None:
    """Let the allocator take its memory in one piece, as on a GPU, where nothing is taken yet."""
    import tensorflow as tf

    from oomdoctor.worker.devices import prepare_devices

    try:
        if not tf.config.list_physical_devices("GPU") and _memory()["current"] > MIB:
            return
        prepare_devices(limit.limit_bytes)
    except RuntimeError:  # the test's module has started the GPU already
        return
    tf.config.experimental.reset_memory_stats(_device())


def _device() -> str:
    from oomdoctor.worker.devices import device_name

    return device_name()


def _memory() -> dict[str, int]:
    import tensorflow as tf

    info: dict[str, int] = tf.config.experimental.get_memory_info(_device())
    return info


def _train(model: Any, limit: Limit) -> None:
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, keras.Model):
        pytest.fail(
            f"The test returned a {type(model).__name__}: a fits_memory test returns a Keras "
            "model, which is trained for two steps, or nothing.",
            pytrace=False,
        )
    from oomdoctor.model.build import compile_model
    from oomdoctor.model.spec import ModelSpec
    from oomdoctor.worker.fit import Trainer
    from oomdoctor.worker.memory_limit import MemoryLimit
    from oomdoctor.worker.messages import Fit

    spec = ModelSpec(source=model.name)
    compile_model(model, spec)
    Trainer(model, spec, MemoryLimit()).train(Fit(limit.batch_size, steps=STEPS))
