"""The functions people import. Facts flow one way: probe, inventory, footprint → rules → report.

Only this package composes the stages; each of them knows nothing of the others.
"""

from oomdoctor._show import draw_with
from oomdoctor.api.crash import explain_error
from oomdoctor.api.data import check
from oomdoctor.api.drawing import Drawing
from oomdoctor.api.machine import probe_machine
from oomdoctor.api.model import estimate_memory
from oomdoctor.api.rescue import fit_with_rescue
from oomdoctor.api.streams import convert, fit_in_chunks, store_features, stream_dataset
from oomdoctor.api.survey import suggest_machine
from oomdoctor.api.tune import suggest_batch_size

__all__ = [
    "check",
    "convert",
    "estimate_memory",
    "explain_error",
    "fit_in_chunks",
    "fit_with_rescue",
    "probe_machine",
    "store_features",
    "stream_dataset",
    "suggest_batch_size",
    "suggest_machine",
]

draw_with(Drawing())
