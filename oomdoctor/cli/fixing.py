"""`oomdoctor check --fix` and `--diff`: changes to scripts, made or only shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomdoctor.cli.output import tell, write
from oomdoctor.findings import Report

if TYPE_CHECKING:
    from oomdoctor.scripts.fix import Change


def show_diff(report: Report, output: str | None) -> int:
    """Write what `--fix` would change as a diff, and return 1 if there is anything."""
    from oomdoctor.api.scripts import safe_changes

    changes = safe_changes(report)
    write("".join(change.diff() for change in changes), output, format_="exact")
    _tell("would change", changes)
    return int(bool(changes))


def fix(report: Report) -> bool:
    """Change the scripts of a report, and return whether there was anything to change."""
    from oomdoctor.api.scripts import safe_changes

    changes = safe_changes(report)
    for change in changes:
        change.write()
    _tell("changed", changes)
    return bool(changes)


def _tell(what: str, changes: list[Change]) -> None:
    places = sum(change.places for change in changes)
    files = f"{len(changes)} script{'' if len(changes) == 1 else 's'}"
    told = f"{what} {places} place{'' if places == 1 else 's'} in {files}"
    tell(f"oomdoctor: {told if changes else 'nothing that is safe to change'}.")
