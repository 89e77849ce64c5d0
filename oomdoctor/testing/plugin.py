"""Hooks of pytest. Loaded into every run of pytest, so nothing heavy is imported here.

TensorFlow reads its allocator's limit when it starts. So a marked test is not run here but in a
pytest of its own, with the limit in its environment; its reports are shown as if it had run here.
Fixtures, parameters, options and `conftest.py` work as usual, in that other process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

MARK = "fits_memory"
SECONDS = 900.0
"""How long a test may take unless its mark says otherwise: TensorFlow can hang without memory."""


@dataclass(frozen=True)
class Limit:
    """What a mark asks for."""

    limit_bytes: int
    batch_size: int
    timeout: float


def limit_of(item: pytest.Item) -> Limit | None:
    """Return what a test's mark asks for, or None; raise a sentence where it is wrong."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return None
    from oomdoctor.errors import UsageError
    from oomdoctor.units import MIB, parse_size

    size, batch_size, timeout = _arguments(item.nodeid, mark)
    try:
        limit_bytes = parse_size(size)
    except UsageError as error:
        raise pytest.UsageError(f"{item.nodeid}: {MARK}: {error}") from None
    if limit_bytes < MIB:
        raise pytest.UsageError(f"{item.nodeid}: {MARK}: the least limit is 1MiB, not {size}.")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise pytest.UsageError(f"{item.nodeid}: {MARK}: batch_size is a whole number from 1 on.")
    return Limit(limit_bytes=limit_bytes, batch_size=batch_size, timeout=float(timeout))


def _arguments(nodeid: str, mark: pytest.Mark) -> tuple[Any, Any, Any]:
    def read(size: Any, *, batch_size: Any = 32, timeout: Any = SECONDS) -> tuple[Any, Any, Any]:
        return size, batch_size, timeout

    try:
        return read(*mark.args, **mark.kwargs)
    except TypeError:
        raise pytest.UsageError(
            f"{nodeid}: write @pytest.mark.{MARK}('6GiB'), with batch_size= and timeout= if needed."
        ) from None


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and in the limited process what reports from there."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(size, *, batch_size=32, timeout={SECONDS:.0f}): run the test in a process of its "
        "own in which TensorFlow has that much memory; a Keras model that it returns is trained "
        "for two steps.",
    )
    if _is_child():
        from oomdoctor.testing.child import Child

        config.pluginmanager.register(Child(config), "oomdoctor-child")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell of a wrong mark before anything is run."""
    for item in items:
        limit_of(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test in a process of its own."""
    limit = None if _is_child() else limit_of(item)
    if limit is None:
        return None
    from oomdoctor.testing.parent import reports_of

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in [*reports_of(item, limit), *_leave(item, nextitem)]:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _leave(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[pytest.TestReport]:
    """Tear down what earlier tests left for this one, as the end of any test does."""
    call = pytest.CallInfo.from_call(
        lambda: item.session._setupstate.teardown_exact(nextitem), when="teardown"
    )
    if call.excinfo is not None:
        yield pytest.TestReport.from_item_and_call(item, call)


@pytest.fixture
def memory_budget(request: pytest.FixtureRequest) -> Any:
    """What the test may take and has taken: `limit_bytes`, `peak_bytes`, `used_bytes`.

    Only for tests that are marked with `fits_memory`.
    """
    limit = limit_of(request.node)
    if limit is None or not _is_child():
        raise pytest.UsageError(
            f"memory_budget is for tests that are marked: @pytest.mark.{MARK}('6GiB')."
        )
    from oomdoctor.testing.child import MemoryBudget

    return MemoryBudget(limit.limit_bytes)


def _is_child() -> bool:
    return "OOMDOCTOR_FITS_MEMORY" in os.environ
