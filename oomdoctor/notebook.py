"""`%load_ext oomdoctor`: diagnoses in notebooks.

`%%oomwatch` watches one cell; `%oomwatch on` every cell from then on, `%oomwatch off` none. The
diagnosis is shown as HTML below the traceback. A watched cell that fails is a cell that failed:
the cells below it do not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.watching import attach

_NAME = "oomwatch"


def load(shell: Any, display: Callable[[Any], object] | None = None) -> None:
    """Add the magics to an IPython shell.

    Args:
        shell: The shell, as IPython hands it to an extension.
        display: Shows a value; IPython's own by default.
    """
    unload(shell)  # a second time, as by %reload_ext, must not watch twice
    watcher = _Watcher(shell, display or _display)
    shell.register_magic_function(watcher.magic, magic_kind="line_cell", magic_name=_NAME)


def unload(shell: Any) -> None:
    """Take the magics away again, and watch no more."""
    for kind in ("line", "cell"):
        magic = shell.magics_manager.magics[kind].pop(_NAME, None)
        watcher = getattr(magic, "__self__", None)
        if isinstance(watcher, _Watcher):
            watcher.switch("off")


class _Watcher:
    def __init__(self, shell: Any, display: Callable[[Any], object]) -> None:
        self._shell = shell
        self._display = display
        self._watches_all = False
        self._is_inside = False
        self._batch_size: int | None = None

    def magic(self, line: str, cell: str | None = None) -> None:
        """Watch a cell for out-of-memory errors: `%%oomwatch [BATCH_SIZE]`, `%oomwatch on|off`."""
        __tracebackhide__ = True  # IPython leaves this frame out
        try:
            if cell is None:
                self.switch(line.strip() or "on")
                return
            self._batch_size = _batch_size(line)
        except UsageError as error:
            raise _usage_error(str(error)) from None
        with self._quiet():
            result = self._shell.run_cell(cell)
        if result.error_before_exec is not None:
            raise result.error_before_exec.with_traceback(None)
        if result.error_in_exec is not None:
            if not self._watches_all:
                self._shell.events.register("post_run_cell", self._show_once)
            raise result.error_in_exec

    def switch(self, word: str) -> None:
        """Watch every cell, or none."""
        if word not in ("on", "off"):
            raise UsageError(f"{word!r} is neither on nor off: %oomwatch on, or %%oomwatch.")
        wanted = word == "on"
        if wanted and not self._watches_all:
            self._shell.events.register("post_run_cell", self._show)
        elif self._watches_all and not wanted:
            self._shell.events.unregister("post_run_cell", self._show)
        self._watches_all = wanted

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Let a cell run inside this one without a traceback: the cell around it shows it."""
        shell, names = self._shell, ("showtraceback", "showsyntaxerror")
        self._is_inside = True
        for name in names:
            setattr(shell, name, _ignore)
        try:
            yield
        finally:
            self._is_inside = False
            for name in names:
                delattr(shell, name)  # the class has them

    def _show_once(self, result: Any) -> None:
        self._shell.events.unregister("post_run_cell", self._show_once)
        self._show(result)

    def _show(self, result: Any) -> None:
        if self._is_inside:
            return
        batch_size, self._batch_size = self._batch_size, None
        error = getattr(result, "error_in_exec", None)
        report = attach(error, batch_size=batch_size) if error is not None else None
        if report is not None:
            self._display(report)


def _ignore(*_: object, **__: object) -> None:
    pass


def _batch_size(line: str) -> int | None:
    words = line.replace("--batch-size", " ").replace("=", " ").split()
    if not words:
        return None
    if len(words) > 1 or not words[0].isdigit() or int(words[0]) < 1:
        raise UsageError(f"{line.strip()!r} is not a batch size: write %%oomwatch 32.")
    return int(words[0])


def _usage_error(message: str) -> Exception:
    """The error that IPython shows in one line, without a traceback."""
    from IPython.core import error  # type: ignore[import-not-found,unused-ignore]

    usage_error: Exception = error.UsageError(message)
    return usage_error


def _display(value: Any) -> None:
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    display(value)  # type: ignore[no-untyped-call,unused-ignore]
