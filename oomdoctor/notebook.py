"""`%load_ext oomdoctor`: diagnoses in notebooks.

`%%oomwatch` watches one cell; `%oomwatch on` every cell from then on, `%oomwatch off` none. The
diagnosis is shown as HTML below the traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.watching import attach


def load(shell: Any, display: Callable[[Any], object] | None = None) -> None:
    """Add the magics to an IPython shell.

    Args:
        shell: The shell, as IPython hands it to an extension.
        display: Shows a value; IPython's own by default.
    """
    watcher = _Watcher(shell, display or _display)
    shell.register_magic_function(watcher.magic, magic_kind="line_cell", magic_name="oomwatch")


def unload(shell: Any) -> None:
    """Take the magics away again."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("oomwatch", None)


class _Watcher:
    def __init__(self, shell: Any, display: Callable[[Any], object]) -> None:
        self._shell = shell
        self._display = display
        self._watches_all = False

    def magic(self, line: str, cell: str | None = None) -> None:
        """Watch a cell for out-of-memory errors: `%%oomwatch [BATCH_SIZE]`, `%oomwatch on|off`."""
        if cell is None:
            self._switch(line.strip() or "on")
            return
        batch_size = _batch_size(line)
        result = self._shell.run_cell(cell)
        if not self._watches_all:
            self._show(result, batch_size)

    def _switch(self, word: str) -> None:
        if word not in ("on", "off"):
            raise UsageError(f"{word!r} is neither on nor off: %oomwatch on, or %%oomwatch.")
        wanted = word == "on"
        if wanted and not self._watches_all:
            self._shell.events.register("post_run_cell", self._show)
        elif self._watches_all and not wanted:
            self._shell.events.unregister("post_run_cell", self._show)
        self._watches_all = wanted

    def _show(self, result: Any, batch_size: int | None = None) -> None:
        error = getattr(result, "error_in_exec", None)
        if error is None:
            return
        report = attach(error, batch_size=batch_size)
        if report is not None:
            self._display(report)


def _batch_size(line: str) -> int | None:
    words = line.replace("--batch-size", " ").replace("=", " ").split()
    if not words:
        return None
    if len(words) > 1 or not words[0].isdigit() or int(words[0]) < 1:
        raise UsageError(f"{line.strip()!r} is not a batch size: write %%oomwatch 32.")
    return int(words[0])


def _display(value: Any) -> None:
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    display(value)
