"""Steps as on a busy machine: all threads on one core, and free again afterwards."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from oomdoctor.measure.crowd import crowded

HAS_CORES = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1
pytestmark = pytest.mark.skipif(not HAS_CORES, reason="needs Linux and two cores")


def cores_of_all_threads():
    return {frozenset(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")}


def test_all_threads_share_a_core_and_are_let_go_whatever_happens():
    before = os.sched_getaffinity(0)
    done = threading.Event()
    threading.Thread(target=done.wait).start()
    try:
        with contextlib.suppress(KeyboardInterrupt), crowded():
            inside = cores_of_all_threads()
            threading.Thread(target=done.wait).start()  # inherits the one core
            raise KeyboardInterrupt
        assert inside == {frozenset({min(before)})}
        assert cores_of_all_threads() == {frozenset(before)}
    finally:
        done.set()


@pytest.mark.tensorflow
@pytest.mark.parametrize(("threads", "expected"), [(None, True), ("1", False), ("4", True)])
def test_a_crowd_matters_where_several_threads_run_ops(threads, expected):
    environ = {k: v for k, v in os.environ.items() if k != "TF_NUM_INTEROP_THREADS"}
    if threads:
        environ["TF_NUM_INTEROP_THREADS"] = threads
    code = "from oomdoctor.measure.crowd import has_turns; print(has_turns())"
    out = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == str(expected)
