"""Container limits, from trees laid out as real systems do and from awkward ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor.probe.cgroup import read_cgroup_limit
from oomdoctor.units import GIB, MIB

MACHINES = Path(__file__).parents[2] / "fixtures" / "machines"
UNIFIED = "35 24 0:30 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"


def write_tree(root: Path, *, cgroup: str, mountinfo: str = UNIFIED, **files: str) -> Path:
    """Write a tree; a keyword such as `a__b__memory_max` is the file `a/b/memory.max`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text(mountinfo)
    for name, text in files.items():
        *folders, file = name.split("__")
        path = root.joinpath("sys/fs/cgroup", *folders, file.replace("_", ".", 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("machine", "limit", "available", "source"),
    [
        ("docker-v2-8gib", 8 * GIB, 6 * GIB, "cgroup memory.max"),
        ("docker-v1-4gib", 4 * GIB, 3 * GIB, "cgroup memory.limit_in_bytes"),
        (
            "kubernetes-v2-parent-limit",
            6 * GIB,
            6 * GIB - (5 * GIB - 512 * MIB),
            "cgroup memory.max (kubepods-burstable-pod7d3c1b2a.slice)",
        ),
        ("slurm-v1", 16 * GIB, 6 * GIB, "cgroup memory.limit_in_bytes (job_4711)"),
        ("slurm-v2", 32 * GIB, 28 * GIB, "cgroup memory.max (job_4711)"),
        (
            "memory-high",
            9 * GIB,
            9 * GIB - (7 * GIB - 512 * MIB),
            "cgroup memory.high (user-1000.slice)",
        ),
        ("hybrid", 5 * GIB, 4 * GIB, "cgroup memory.limit_in_bytes"),
        ("cgroupns", 7 * GIB, 6 * GIB, "cgroup memory.max (the container's group)"),
    ],
)
def test_the_limit_that_leaves_the_least_binds(machine, limit, available, source):
    found = read_cgroup_limit(MACHINES / machine)

    assert found is not None
    assert (found.limit_bytes, found.available_bytes, found.source) == (limit, available, source)


@pytest.mark.parametrize("machine", ["unlimited-v2", "unlimited-v1-sentinel", "garbage"])
def test_no_limit_is_none(machine):
    assert read_cgroup_limit(MACHINES / machine) is None


def test_a_machine_without_proc_has_no_limit(tmp_path):
    assert read_cgroup_limit(tmp_path) is None


def test_every_recorded_machine_has_its_line_in_the_readme():
    listed = (MACHINES / "README.md").read_text()

    folders = sorted(folder.name for folder in MACHINES.iterdir() if folder.is_dir())
    assert [name for name in folders if f"- `{name}`:" not in listed] == []


def test_usage_above_the_limit_leaves_nothing_rather_than_less(tmp_path):
    root = write_tree(
        tmp_path, cgroup="0::/job\n", job__memory_max="1000", job__memory_current="1500"
    )

    found = read_cgroup_limit(root)

    assert found is not None
    assert found.available_bytes == 0


def test_a_limit_without_readable_usage_is_all_available(tmp_path):
    root = write_tree(tmp_path, cgroup="0::/job\n", job__memory_max="1000")

    found = read_cgroup_limit(root)

    assert found is not None
    assert found.available_bytes == 1000


def test_a_file_that_cannot_be_read_is_passed_over(tmp_path):
    root = write_tree(tmp_path, cgroup="0::/job\n", job__memory_high="2000")
    # Opening a folder fails for everybody, even for root, as a forbidden file does for others.
    (root / "sys/fs/cgroup/job/memory.max").mkdir()

    found = read_cgroup_limit(root)

    assert found is not None
    assert found.source == "cgroup memory.high"


def test_a_group_that_the_mount_does_not_show_falls_back_to_its_parents(tmp_path):
    root = write_tree(tmp_path, cgroup="0::/pods/mine\n", pods__memory_max="1000")

    found = read_cgroup_limit(root)

    assert found is not None
    assert found.source == "cgroup memory.max (pods)"


def test_a_mount_of_somebody_elses_group_does_not_count(tmp_path):
    other = UNIFIED.replace(" / /sys/fs/cgroup ", " /other /sys/fs/cgroup/other ")
    root = write_tree(
        tmp_path,
        cgroup="0::/mine\n",
        mountinfo=UNIFIED + other,
        mine__memory_max="2000",
        other__memory_max="1000",
    )

    found = read_cgroup_limit(root)

    assert found is not None
    assert found.limit_bytes == 2000


def test_the_only_mount_is_trusted_where_paths_start_at_different_places(tmp_path):
    mountinfo = UNIFIED.replace(" / /sys", " /docker/inner /sys")
    root = write_tree(tmp_path, cgroup="0::/docker/outer\n", mountinfo=mountinfo, memory_max="1000")

    found = read_cgroup_limit(root)

    assert found is not None
    assert found.limit_bytes == 1000


def test_a_path_cannot_lead_out_of_the_tree(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    root = write_tree(tmp_path / "tree", cgroup="0::/a/../../../../..\n", a__memory_max="max")

    assert read_cgroup_limit(root) is None


def test_a_mount_point_with_a_space_is_found(tmp_path):
    mountinfo = UNIFIED.replace("/sys/fs/cgroup", "/sys/fs/cgroup/my\\040groups")
    root = write_tree(
        tmp_path,
        cgroup="0::/job\n",
        mountinfo=mountinfo,
        **{"my groups__job__memory_max": "1000"},
    )

    assert read_cgroup_limit(root) is not None


def test_version_1_tells_the_limit_of_groups_a_container_does_not_show(tmp_path):
    root = tmp_path / "docker"
    shutil.copytree(MACHINES / "docker-v1-4gib", root)
    statistics = root / "sys/fs/cgroup/memory/memory.stat"
    text = statistics.read_text()
    statistics.write_text(
        text.replace(f"memory_limit {4 * GIB}", f"memory_limit {2 * GIB}"),
    )

    found = read_cgroup_limit(root)

    assert found is not None
    assert found.limit_bytes == 2 * GIB
    assert found.source == "cgroup memory.limit_in_bytes (a group above)"


def test_version_1_groups_that_do_not_inherit_are_not_bound_by_their_parent(tmp_path):
    memory = "34 25 0:31 / /sys/fs/cgroup rw shared:14 - cgroup cgroup rw,memory\n"
    limits = {
        "parent__memory_limit_in_bytes": "1000",
        "parent__child__memory_limit_in_bytes": "3000",
    }
    cgroup = "5:cpu,memory:/parent/child\n"
    inherits = write_tree(tmp_path / "one", cgroup=cgroup, mountinfo=memory, **limits)
    alone = write_tree(
        tmp_path / "two",
        cgroup=cgroup,
        mountinfo=memory,
        parent__memory_use_hierarchy="0",
        **limits,
    )

    found = [read_cgroup_limit(inherits), read_cgroup_limit(alone)]

    assert [one.limit_bytes for one in found if one] == [1000, 3000]


@settings(max_examples=60, deadline=None)
@given(cgroup=st.binary(max_size=80), mounts=st.binary(max_size=80), limit=st.binary(max_size=40))
def test_no_content_makes_the_reader_fail(tmp_path_factory, cgroup, mounts, limit):
    root = tmp_path_factory.mktemp("machine")
    write_tree(root, cgroup="", job__memory_max="1000")
    (root / "proc/self/cgroup").write_bytes(cgroup + b"\n0::/job\n")
    (root / "proc/self/mountinfo").write_bytes(mounts + b"\n" + UNIFIED.encode())
    (root / "sys/fs/cgroup/job/memory.max").write_bytes(limit)

    found = read_cgroup_limit(root)

    assert found is None or found.limit_bytes > 0
