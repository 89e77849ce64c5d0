"""TensorFlow's profiler → allocation events of one allocator.

Runs inside the worker. The profiler's host trace (level 2) has one `MemoryAllocation` or
`MemoryDeallocation` event per buffer.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oomdoctor.trace.replay import Event

_NAMES = ("MemoryAllocation", "MemoryDeallocation")


def record(step: Callable[[], None], folder: str | None) -> list[Event]:
    """Run a step under the profiler and return its allocation events.

    Args:
        step: Runs one step to its end.
        folder: Where the profiler may write; emptied afterwards.
    """
    recording = Recording(folder)
    try:
        step()
    except BaseException:
        recording.stop()
        raise
    return recording.stop()


class Recording:
    """Allocation events from now on, until `stop`. TensorFlow allows one at a time."""

    def __init__(self, folder: str | None) -> None:
        import tensorflow as tf

        self._logs = tempfile.mkdtemp(dir=folder)
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
        )
        try:
            tf.profiler.experimental.start(self._logs, options)
        except BaseException:
            shutil.rmtree(self._logs, ignore_errors=True)
            raise

    def stop(self) -> list[Event]:
        """End it and return the events."""
        import tensorflow as tf

        try:
            tf.profiler.experimental.stop()
            return [event for path in Path(self._logs).rglob("*.xplane.pb") for event in read(path)]
        finally:
            shutil.rmtree(self._logs, ignore_errors=True)


def read(path: Path) -> list[Event]:
    """Return the allocation events in one profile, of the allocator that is used most."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    by_allocator: dict[str, list[Event]] = {}
    for plane in space.planes:
        for allocator, event in _of_plane(plane):
            by_allocator.setdefault(allocator, []).append(event)
    return max(by_allocator.values(), key=len, default=[])


def _of_plane(plane: Any) -> Iterator[tuple[str, Event]]:
    wanted = {key for key, value in plane.event_metadata.items() if value.name in _NAMES}
    names = {key: value.name for key, value in plane.stat_metadata.items()}
    for line in plane.lines:
        for event in line.events:
            if event.metadata_id in wanted:
                stats = {names[stat.metadata_id]: _value(stat, names) for stat in event.stats}
                is_release = plane.event_metadata[event.metadata_id].name == _NAMES[1]
                at_ps = line.timestamp_ns * 1000 + event.offset_ps
                yield (
                    str(stats.get("allocator_name")),
                    _event(stats, at_ps, line.id, is_release),
                )


def _value(stat: Any, names: dict[int, str]) -> Any:
    field = stat.WhichOneof("value")
    value = getattr(stat, field)
    return names[value] if field == "ref_value" else value


def _event(stats: dict[str, Any], at_ps: int, thread: int, is_release: bool) -> Event:
    return Event(
        at_ps=at_ps,
        thread=thread,
        address=stats["addr"],
        allocated_bytes=stats["allocation_bytes"],
        requested_bytes=stats["requested_bytes"],
        in_use_bytes=stats["bytes_allocated"],
        is_release=is_release,
        op=stats.get("tf_op"),
        kind=stats.get("region_type"),
        dtype=stats.get("data_type") or None,
        shape=stats.get("shape"),
    )
