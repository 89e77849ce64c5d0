"""What building a model takes is capped, in the process that builds it."""

import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.model.spec import ModelSpec
from oomdoctor.runner.process import WorkerProcess, environment_without_pool
from oomdoctor.units import GIB
from oomdoctor.worker.messages import Estimated, EstimateStep, OutOfMemory, Refused

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
from hostile_archives import write_huge_layer

CAPPED = """
import resource
from oomdoctor.worker.estimating import cap_memory
cap_memory(None)
assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY
cap_memory(256 * 2**20)
try:
    bytearray(512 * 2**20)
except MemoryError:
    print("capped")
resource.setrlimit(resource.RLIMIT_DATA, (128 * 2**20, 128 * 2**20))
cap_memory(256 * 2**20)  # above what the user's own limit allows
print(resource.getrlimit(resource.RLIMIT_DATA)[0] // 2**20)
"""


def test_a_cap_keeps_to_the_user_s_own_limit():
    done = subprocess.run(
        [sys.executable, "-c", CAPPED], capture_output=True, text=True, check=False
    )

    assert done.stdout.split() == ["capped", "128"], done.stderr


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("inputs", "units", "kinds"),
    [(10**9, 10**5, (OutOfMemory, Refused)), (10**6, 10**4, (Estimated,))],
    ids=["400 TB", "40 GB"],
)
def test_a_layer_that_no_machine_can_hold_is_an_answer(tmp_path, inputs, units, kinds):
    path = tmp_path / "huge.keras"
    write_huge_layer(path, inputs=inputs, units=units)
    worker = WorkerProcess(environment_without_pool())
    try:
        answer = worker.ask(EstimateStep(ModelSpec(str(path)), 1, ram_bytes=2 * GIB), seconds=300)
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
    finally:
        worker.close()

    assert isinstance(answer, kinds)
    if isinstance(answer, Estimated):
        assert answer.estimate.peak_bytes > 3 * inputs * units * 4
    most_kib = int(status.partition("VmHWM:")[2].split()[0])
    assert most_kib < 1.5 * 2**20
