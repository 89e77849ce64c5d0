"""Diagnoses at the place of the crash: a context manager and a `sys.excepthook`.

An out-of-memory error is raised on as it was, with the diagnosis attached: as a note, which
Python 3.11 prints below the traceback, and as the attribute `oomdoctor`, the report itself.
Nothing that goes wrong in here hides the error of the user.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from oomdoctor.findings import Report


@contextmanager
def watch(*, batch_size: int | None = None, model: Any = None) -> Iterator[None]:
    """Attach a diagnosis to an out-of-memory error that is raised inside, and raise it on.

    Example:
        >>> import oomdoctor
        >>> try:
        ...     with oomdoctor.watch():
        ...         raise MemoryError("Unable to allocate 4.09 GiB")
        ... except MemoryError as error:
        ...     error.oomdoctor.facts.diagnosis.device
        'CPU'

    Args:
        batch_size: The batch size of the run, to tell which dimension of a shape it is.
        model: The Keras model that is trained: its weights are told with the diagnosis.
    """
    try:
        yield
    except Exception as error:
        attach(error, batch_size=batch_size, model=model)
        raise


def attach(
    error: BaseException, *, batch_size: int | None = None, model: Any = None
) -> Report | None:
    """Attach a diagnosis to an error, if it is about memory, and return it."""
    report = _explained(error, batch_size=batch_size, model=model)
    if report is None:
        return None
    note = f"\n{report!r}"
    try:
        error.oomdoctor = report  # type: ignore[attr-defined]
        if hasattr(error, "add_note"):
            error.add_note(note)
        else:  # Python 3.10
            error.__notes__ = [*getattr(error, "__notes__", []), note]  # type: ignore[attr-defined]
    except (AttributeError, TypeError):  # an exception that takes no attributes
        pass
    return report


def install_excepthook(*, batch_size: int | None = None) -> Callable[[], None]:
    """Print a diagnosis below the traceback of an error that ends the program, from now on.

    Args:
        batch_size: The batch size of the run, to tell which dimension of a shape it is.

    Returns:
        A function that puts the former hook back.
    """
    former = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        former(kind, error, where)
        if getattr(error, "oomdoctor", None) is not None:
            return  # `watch` has said it already
        report = _explained(error, batch_size=batch_size)
        if report is not None:
            print(f"\n{report!r}", file=sys.stderr)

    def uninstall() -> None:
        if sys.excepthook is hook:
            sys.excepthook = former

    sys.excepthook = hook
    return uninstall


def _explained(error: BaseException, **known: Any) -> Report | None:
    """The report on an error about memory; None for other errors, and where there is no room."""
    from oomdoctor.api import explain_error

    try:
        report = explain_error(error, **known)
        diagnosis = report.facts.diagnosis
    except Exception:  # memory is short, and the user's own error matters more
        return None
    is_about_memory = diagnosis is not None and report.verdict == "does_not_fit"
    return report if is_about_memory else None
