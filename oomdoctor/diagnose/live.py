"""What the process at hand can add: the allocator's own figures, if TensorFlow is loaded."""

from __future__ import annotations

import sys
from dataclasses import replace

from oomdoctor.facts import Diagnosis


def add_live_figures(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with what TensorFlow holds now, where the exception does not say.

    TensorFlow is asked only if the program has loaded it, and never made to start a device.
    """
    tensorflow = sys.modules.get("tensorflow")
    device = diagnosis.device or ""
    if tensorflow is None or diagnosis.in_use_bytes is not None or not device:
        return diagnosis
    name = device if ":" in device else f"{device}:0"
    try:
        figures = tensorflow.config.experimental.get_memory_info(name)
        now, peak = int(figures["current"]), int(figures["peak"])
    except Exception:  # the CPU keeps no figures, a device may be gone: they are a bonus
        return diagnosis
    note = f"TensorFlow holds {now:,} bytes on {name} now and held {peak:,} at most."
    return replace(diagnosis, notes=(*diagnosis.notes, note))
