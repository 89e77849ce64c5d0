"""Machines by name, for a check against a machine that is not this one.

Every figure has its source in `catalogue_data`. Two of them need a definition:

- *Usable VRAM* is what TensorFlow's allocator gets on a card that nothing else uses. TensorFlow
  logs it when it starts ("Created device … with 13757 MB memory"), so it is taken from the newest
  such log found in public; it lies below the card's total by TensorFlow's reserve and by what the
  driver keeps. It becomes the GPU's free memory.
- *Usable RAM* is what a fresh session leaves. It becomes the RAM's available memory.

An entry named after a card alone has no RAM: the host decides that. What a service offers changes
without notice; the sources carry the year.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from oomdoctor.errors import UsageError
from oomdoctor.probe.catalogue_data import ENTRIES

if TYPE_CHECKING:
    from oomdoctor.facts import Machine
    from oomdoctor.probe.catalogue_entry import CatalogueEntry


def list_machines() -> tuple[CatalogueEntry, ...]:
    """Return every machine of the catalogue, by name."""
    return tuple(sorted(ENTRIES, key=lambda entry: entry.name))


def find_machine(name: str) -> Machine:
    """Return a machine of the catalogue.

    Example:
        >>> find_machine("colab-t4").gpus[0].name
        'Tesla T4'

    Raises:
        UsageError: If there is no such machine; the message names the nearest one.
    """
    entries = {entry.name: entry for entry in list_machines()}
    wanted = name.strip().lower()
    if wanted in entries:
        return entries[wanted].to_machine()
    # To difflib the start of a name, such as "h100", is closer to a short name, such as "p100".
    near = [known for known in entries if wanted and known.startswith(wanted)][:1]
    near = near or difflib.get_close_matches(wanted, entries, n=1, cutoff=0.5)
    near = near or [known for known in entries if wanted and wanted in known][:1]
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(
        f"{name!r} is not in the machine catalogue: {hint}"
        "`oomdoctor probe --list-machines` lists them all."
    )
