"""The messages that are known, by the words they hold.

Each pattern has needles, which are looked for first because that is cheap, and a regular
expression whose named groups become the fields of an `Event`. Every repetition is bounded or runs
over a class that the next token is not in, so that matching takes linear time. The order matters
where two patterns know the same words: the first one that matches wins within a group.

Sources: TensorFlow 0.8 to 2.21 and XLA main, NumPy 1.13 to 2.4, Linux, Slurm, LSF, PBS,
Kubernetes, Colab, Kaggle and Jupyter.
"""

from __future__ import annotations

from oomdoctor.diagnose.messages_device import ALLOCATORS, CARD, LIBRARY
from oomdoctor.diagnose.messages_host import END, HOST, LIMITS, OPERATION, OTHER

GROUPS = (ALLOCATORS, LIBRARY, CARD, HOST, END, LIMITS, OTHER, OPERATION)
"""Within a group a line has one meaning, the first; across groups it may have several."""

NEEDLES = tuple(
    (needle, place, pattern)
    for place, group in enumerate(GROUPS)
    for pattern in group
    for needle in pattern.needles
)
"""Every needle with its pattern and the place of its group, in the order of the table."""

ROOTS = (
    "mem", "alloc", "oom", "kill", "error", "exce", "interrupt", "_status_", "_mismatch",
    "exhaust", "xla", "pjrt", "jaxlib", "node", "[op:", "kernel", "buffer", "2gb", "2147483647",
    "2gib", "protobuf", "too ", "failure", "fail", "handle", "freed_by", "-> ", "mib /",
    "bytes free", "blas", "dnn", "algorithm", "version", "compiled", "137", "abruptly", "247",
    "size: ", "shape: ", "b from ", "cusolver", "signal 9", "status -9", "code -9", "sigkill",
    "reaper", "limit", "initialized", "copying", "large", "not possible", "exceed", "space left",
    "quota", "errno 28", "retracing", "strategy", "replica", "nccl", "tower_", "reduce",
    "multi_gpu", "dumped", "abort", "illegal", "bus e", "segmentation", "from device", "on host",
    "pinned", "canceled future", "session crash", "preempt", "walltime", "low on resource",
    "available ram", "horovod", " dso", "of_me+", "fault", "not create", "perhaps",
    "requests:", "operator: ", "value=tensor<", "being cached", "is too big", "vmem",
    "maximum allowed", "usage thresh", "was using", "serialized", "cachedataset", "cache_dataset",
)  # fmt: skip
"""Parts of words of which one is in every needle: most lines of a log have none."""
