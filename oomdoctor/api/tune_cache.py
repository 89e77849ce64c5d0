"""What a search is asked, as a name under which its answer is kept."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from oomdoctor.api.conclude import installed
from oomdoctor.facts import Tuning
from oomdoctor.model.spec import ModelSpec
from oomdoctor.units import MIB

READ_FROM_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)
"""What changes an answer and is told to TensorFlow from outside."""


def question_of(
    spec: ModelSpec, wanted: Any, digest_of_built: Callable[[], str | None]
) -> str | None:
    """Return the name of what is asked, or None if the same words may mean another model."""
    from oomdoctor._version import __version__
    from oomdoctor.model.code_digest import digest_of_code
    from oomdoctor.tune.cache import digest

    described: Any = asdict(spec)
    if spec.config is not None:
        content = digest_of_code() if spec.objects else ""
    elif spec.is_file:
        content = _digest_of_file(spec.source)
    else:
        content = digest_of_built()  # code can change under the same name: it is loaded first
    if content is None:
        return None
    described["content"] = content
    described.pop("sys_path")
    return digest(
        {
            "spec": described,
            "wanted": asdict(wanted),
            "versions": [__version__, *installed()],
            "device": [platform.machine(), platform.node(), os.cpu_count()],
            "environment": [os.environ.get(name) for name in READ_FROM_ENVIRONMENT],
        }
    )


def found_before(question: str, wanted: Any) -> Tuning | None:
    """Return an answer that was kept, if it is one to this question."""
    from oomdoctor.tune.cache import find

    def accepts(tuning: Tuning) -> bool:
        return bool(
            tuning.batch_size >= wanted.minimum
            and (wanted.maximum is None or tuning.batch_size <= wanted.maximum)
            and tuning.batch_size % wanted.multiple_of == 0
            and tuning.budget_bytes == wanted.budget_bytes
            and tuning.objective == wanted.objective
        )

    found = find(question, accepts=accepts)
    if found is None:
        return None
    note = "Found before and kept; cache=False or --no-cache runs it again."
    return replace(found, notes=(*found.notes, note))


def _digest_of_file(path: str) -> str | None:
    whole = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(MIB):
                whole.update(block)
    except OSError:
        return None
    return whole.hexdigest()
