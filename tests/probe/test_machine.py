"""The whole machine: which limit binds, what is declared, and what the notes say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.probe.catalogue import find_machine
from oomdoctor.probe.host import Host
from oomdoctor.probe.machine import declare_machine, probe_machine
from oomdoctor.units import GIB

MACHINES = Path(__file__).parents[2] / "fixtures" / "machines"
HOST = Host(
    total_bytes=64 * GIB,
    available_bytes=40 * GIB,
    swap_total_bytes=2 * GIB,
    swap_free_bytes=GIB,
    cpu_count=16,
)


def probe(machine: str, *, host: Host = HOST, **environ: str):
    return probe_machine(root=MACHINES / machine, environ=environ, with_gpus=False, host=host)


def test_without_a_limit_the_system_binds():
    ram = probe("unlimited-v2").ram

    assert (ram.total_bytes, ram.available_bytes) == (64 * GIB, 40 * GIB)
    assert (ram.limit_bytes, ram.limit_source) == (None, None)
    assert (ram.swap_total_bytes, ram.swap_free_bytes) == (2 * GIB, GIB)
    assert ram.origin == "measured"


def test_a_container_binds_below_the_system():
    ram = probe("docker-v2-8gib").ram

    assert (ram.total_bytes, ram.available_bytes) == (64 * GIB, 6 * GIB)
    assert (ram.limit_bytes, ram.limit_source) == (8 * GIB, "cgroup memory.max")


def test_slurm_binds_where_it_is_lower_than_the_container():
    ram = probe("docker-v2-8gib", SLURM_MEM_PER_NODE="4096").ram

    assert (ram.available_bytes, ram.limit_source) == (4 * GIB, "Slurm SLURM_MEM_PER_NODE")


def test_the_container_binds_where_it_is_lower_than_slurm():
    ram = probe("docker-v2-8gib", SLURM_MEM_PER_NODE="16384").ram

    assert ram.limit_source == "cgroup memory.max"


def test_a_busy_system_leaves_less_than_its_limits_allow():
    busy = Host(total_bytes=64 * GIB, available_bytes=GIB)

    ram = probe("docker-v2-8gib", host=busy).ram

    assert ram.available_bytes == GIB
    assert ram.limit_source == "cgroup memory.max"


def test_a_limit_above_the_machines_ram_is_none():
    small = Host(total_bytes=8 * GIB, available_bytes=7 * GIB)

    ram = probe("docker-v2-8gib", host=small).ram

    assert (ram.available_bytes, ram.limit_bytes, ram.limit_source) == (7 * GIB, None, None)


def test_a_limit_counts_where_the_system_tells_nothing():
    ram = probe("docker-v2-8gib", host=Host()).ram

    assert (ram.total_bytes, ram.available_bytes, ram.limit_bytes) == (None, 6 * GIB, 8 * GIB)


def test_nothing_known_is_none_rather_than_zero():
    ram = probe("unlimited-v2", host=Host()).ram

    assert (ram.total_bytes, ram.available_bytes) == (None, None)


def test_a_ulimit_is_named_and_explained():
    pytest.importorskip("resource", reason="Windows has no such limit")
    script = f"""
import json, resource
from pathlib import Path
from oomdoctor.probe.host import Host
from oomdoctor.probe.machine import probe_machine
resource.setrlimit(resource.RLIMIT_AS, ({3 * GIB}, resource.RLIM_INFINITY))
host = Host(total_bytes={64 * GIB}, available_bytes={40 * GIB}, virtual_bytes={GIB})
machine = probe_machine(root=Path({str(MACHINES / "docker-v2-8gib")!r}), environ={{}},
                        with_gpus=False, host=host)
print(json.dumps([machine.ram.available_bytes, machine.ram.limit_source, machine.notes]))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    available, source, notes = json.loads(run.stdout)
    assert (available, source) == (2 * GIB, "ulimit -v")
    assert "address space" in notes[0]


def test_wsl_is_noted(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text("Linux version 5.15.167.4-microsoft-standard-WSL2\n")

    machine = probe_machine(root=tmp_path, environ={}, with_gpus=False, host=HOST)

    assert "WSL 2" in machine.notes[0]


def test_this_machine_can_be_probed():
    machine = probe_machine()

    assert machine.ram.total_bytes
    assert machine.ram.available_bytes
    assert machine.ram.available_bytes <= machine.ram.total_bytes
    assert machine.cpu_count
    assert machine.gpus or machine.notes


def test_gpus_and_their_notes_are_part_of_the_machine(nvml_stub):
    env = nvml_stub(
        "count=2\ngpu0.name=A\ngpu0.total=1000\ngpu0.free=900\ngpu1.name=B\ngpu1.total=0",
        CUDA_DEVICE_ORDER="PCI_BUS_ID",
    )
    script = """
import json
from oomdoctor.probe.machine import probe_machine
machine = probe_machine()
print(json.dumps([[gpu.free_bytes for gpu in machine.gpus], machine.notes]))
"""
    run = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )

    free, notes = json.loads(run.stdout)
    assert free == [900, None]
    assert any("count RAM once" in note for note in notes)


def test_without_gpus_nvml_is_not_loaded():
    script = """
import sys
from oomdoctor.probe.machine import probe_machine
probe_machine(with_gpus=False)
heavy = {"pynvml", "numpy", "pandas", "tensorflow", "rich", "tabulate"}
print(heavy & set(sys.modules))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "set()"


def test_declared_ram_is_all_there_and_all_free():
    machine = declare_machine(probe("docker-v2-8gib"), ram=5 * GIB)

    ram = machine.ram
    assert (ram.total_bytes, ram.available_bytes, ram.origin) == (5 * GIB, 5 * GIB, "declared")
    assert (ram.limit_bytes, ram.limit_source) == (None, None)
    assert machine.cpu_count == 16


def test_declared_vram_is_one_gpu_in_place_of_all_others():
    machine = declare_machine(find_machine("kaggle-t4x2"), vram=2_899_102_924)

    (gpu,) = machine.gpus
    assert (gpu.total_bytes, gpu.free_bytes) == (2_899_102_924, 2_899_102_924)
    assert gpu.origin == "declared"
    assert machine.ram == find_machine("kaggle-t4x2").ram


def test_declaring_nothing_changes_nothing():
    base = find_machine("colab-t4")

    assert declare_machine(base) == base


def test_declaring_a_gpu_settles_the_notes_on_gpus_alone():
    base = find_machine("colab-cpu")

    assert declare_machine(base, vram=GIB).notes == ()
    assert declare_machine(base, ram=GIB).notes == base.notes


def test_declaring_ram_settles_the_notes_on_ram_alone():
    base = find_machine("a100-40gb")

    assert declare_machine(base, ram=GIB).notes == ()
    assert declare_machine(base, vram=GIB).notes == base.notes
