"""RAM and the limits on this process, read from the machine the tests run on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from oomdoctor.probe.host import read_address_space_limit, read_host, read_slurm_limit
from oomdoctor.units import GIB, MIB


def test_the_host_has_ram_and_this_process_holds_some_of_it():
    host = read_host()

    assert host.total_bytes is not None
    assert host.available_bytes is not None
    assert 0 < host.available_bytes <= host.total_bytes
    assert 0 < host.resident_bytes < host.total_bytes
    assert host.resident_bytes <= host.virtual_bytes


def test_swap_is_a_number_even_where_there_is_none():
    host = read_host()

    assert host.swap_total_bytes is not None
    assert host.swap_free_bytes is not None
    assert 0 <= host.swap_free_bytes <= host.swap_total_bytes


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs processor affinity")
def test_only_the_processors_this_process_may_use_are_counted():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert read_host().cpu_count == 1
    finally:
        os.sched_setaffinity(0, before)
    assert read_host().cpu_count == len(before)


@pytest.mark.parametrize(
    ("environ", "limit", "source"),
    [
        ({"SLURM_MEM_PER_NODE": "16384"}, 16 * GIB, "Slurm SLURM_MEM_PER_NODE"),
        (
            {"SLURM_MEM_PER_CPU": "4000", "SLURM_CPUS_ON_NODE": "8"},
            32000 * MIB,
            "Slurm SLURM_MEM_PER_CPU",
        ),
        (
            {"SLURM_MEM_PER_GPU": "20480", "SLURM_GPUS_ON_NODE": "2"},
            40 * GIB,
            "Slurm SLURM_MEM_PER_GPU",
        ),
    ],
)
def test_slurm_grants_memory_per_node_processor_or_gpu(environ, limit, source):
    found = read_slurm_limit(environ)

    assert found is not None
    assert (found.limit_bytes, found.source) == (limit, source)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_MEM_PER_NODE": "0"},
        {"SLURM_MEM_PER_NODE": "16G"},
        {"SLURM_MEM_PER_NODE": "-1"},
        {"SLURM_MEM_PER_NODE": ""},
        {"SLURM_MEM_PER_CPU": "4000"},
        {"SLURM_MEM_PER_GPU": "4000", "SLURM_CPUS_ON_NODE": "8"},
    ],
)
def test_no_usable_slurm_variable_is_no_limit(environ):
    assert read_slurm_limit(environ) is None


def test_what_this_process_holds_is_taken_off_the_slurm_grant():
    found = read_slurm_limit({"SLURM_MEM_PER_NODE": "100"}, resident_bytes=30 * MIB)

    assert found is not None
    assert found.available_bytes == 70 * MIB


def test_ulimit_leaves_what_this_process_has_not_taken():
    pytest.importorskip("resource", reason="Windows has no such limit")
    script = f"""
import resource
from oomdoctor.probe.host import read_address_space_limit, read_host
print(read_address_space_limit())
resource.setrlimit(resource.RLIMIT_AS, ({4 * GIB}, resource.RLIM_INFINITY))
virtual = read_host().virtual_bytes
found = read_address_space_limit(virtual_bytes=virtual)
print(found.limit_bytes, found.available_bytes + virtual, found.source)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout.splitlines() == ["None", f"{4 * GIB} {4 * GIB} ulimit -v"]


def test_a_process_beyond_its_ulimit_has_nothing_left():
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        pytest.skip("the tests run under a ulimit themselves")
    try:
        resource.setrlimit(resource.RLIMIT_AS, (64 * GIB, hard))
        found = read_address_space_limit(virtual_bytes=65 * GIB)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    assert found is not None
    assert found.available_bytes == 0
