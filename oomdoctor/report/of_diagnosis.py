"""The words and rows of a diagnosis: what ran out, the lines that say so, what else."""

from __future__ import annotations

from oomdoctor.facts import Diagnosis
from oomdoctor.report.escape import cut, printable
from oomdoctor.report.view import Line, Table
from oomdoctor.units import format_bytes

MAX_QUOTE = 200
MAX_QUOTES = 5

CAUSES_IN_WORDS = {
    "gpu_exhausted": "device memory is full",
    "gpu_fragmented": "GPU memory is fragmented",
    "gpu_held_by_other_process": "another process holds the GPU",
    "cuda_library_allocation": "cuDNN or cuBLAS could not allocate GPU memory",
    "dataset_on_gpu": "a whole array was copied to the GPU",
    "xla_exhausted": "device memory is full (XLA)",
    "multi_gpu_exhausted": "several GPUs are full",
    "host_array_too_large": "an array does not fit in RAM",
    "host_killed": "killed: out of system RAM",
    "host_exhausted": "system RAM is full",
    "host_allocation_warning": "a large allocation, not a failure",
    "pipeline_buffer": "a shuffle buffer or cache fills RAM",
    "leak": "memory leak",
    "tensor_proto_too_large": "more than 2 GB in one graph",
    "not_memory": "not a memory problem",
    "no_failure": "no failure",
}


def headline(diagnosis: Diagnosis) -> str:
    """Return what ran out, or what happened instead, as a sentence."""
    return printable(diagnosis.summary)


def diagnosis_lines(diagnosis: Diagnosis) -> list[Line]:
    """Return where it happened, and the lines of the log that say so."""
    lines = []
    cause = f"{CAUSES_IN_WORDS[diagnosis.cause]} (confidence {diagnosis.confidence * 100:.0f} %)"
    state = "does_not_fit" if diagnosis.is_fatal else "info"
    lines.append(Line(state=state, category="Cause", text=cause))
    buffer = _shape(diagnosis) if diagnosis.shape and _is_of_a_buffer(diagnosis) else ""
    told = (_figures(diagnosis), ("Largest buffer", buffer), ("Where", _where(diagnosis)))
    for category, text in told:
        if text:
            lines.append(Line(state="info", category=category, text=text))
    for number, text in sorted(diagnosis.evidence[:MAX_QUOTES]):
        quote = cut(printable(text), MAX_QUOTE)
        lines.append(Line(state="info", category=f"line {number}", text=quote))
    return lines


def _asked(diagnosis: Diagnosis) -> str:
    text = format_bytes(diagnosis.requested_bytes)
    if diagnosis.shape and not _is_of_a_buffer(diagnosis):
        text += f" for shape {_shape(diagnosis)}"
    if diagnosis.limit_bytes is not None:
        text += f"; the limit is {format_bytes(diagnosis.limit_bytes)}"
    if diagnosis.in_use_bytes is not None:
        text += f", {format_bytes(diagnosis.in_use_bytes)} in use"
    return text


def _shape(diagnosis: Diagnosis) -> str:
    shape = "×".join(map(str, diagnosis.shape or ()))
    return f"{shape} of {diagnosis.dtype}" if diagnosis.dtype else shape


def _is_of_a_buffer(diagnosis: Diagnosis) -> bool:
    """Whether the shape is that of XLA's largest buffer, not of the request."""
    return diagnosis.cause == "xla_exhausted" and diagnosis.batch_dimension is None


def _figures(diagnosis: Diagnosis) -> tuple[str, str]:
    """What was asked for; where the log does not say that, what was in use, or the limit."""
    limit, used = diagnosis.limit_bytes, diagnosis.in_use_bytes
    if diagnosis.requested_bytes is not None:
        return "Requested", _asked(diagnosis)
    if used is not None:
        return "In use", format_bytes(used) + (
            "" if limit is None else f" of {format_bytes(limit)}"
        )
    return "Limit", "" if limit is None else format_bytes(limit)


def _where(diagnosis: Diagnosis) -> str:
    parts = []
    if diagnosis.layer:
        parts.append(f"layer {printable(diagnosis.layer)}")
    if diagnosis.op:
        parts.append(f"op {printable(diagnosis.op)}")
    if diagnosis.device:
        parts.append(f"on {printable(diagnosis.device)}")
    if diagnosis.source_line:
        parts.append(f"from {printable(diagnosis.source_line)}")
    return ", ".join(parts)


def diagnosis_tables(diagnosis: Diagnosis) -> list[Table]:
    """Return who holds the memory, and what else it may have been."""
    holders = Table(
        title="What holds the memory",
        headers=("what", "bytes"),
        rows=tuple((what, format_bytes(size)) for what, size in diagnosis.holders),
    )
    return [holders, others_table(diagnosis)]


def others_table(diagnosis: Diagnosis) -> Table:
    """Return what else it may have been."""
    return Table(
        title="Other possible causes",
        headers=("cause", "confidence", "why"),
        rows=tuple(
            (CAUSES_IN_WORDS[other.cause], f"{other.confidence * 100:.0f} %", printable(other.why))
            for other in diagnosis.alternatives
        ),
    )
