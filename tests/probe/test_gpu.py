"""GPUs as the real pynvml tells them, asked in a process that finds a scripted driver library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types

import pytest

from oomdoctor.probe.gpu import read_gpus
from oomdoctor.units import GIB, MIB

ASK = """
import dataclasses, json
from oomdoctor.probe.gpu import read_gpus
gpus, notes = read_gpus()
print(json.dumps([[dataclasses.asdict(gpu) for gpu in gpus], notes]))
"""

TWO_GPUS = f"""
count=2
gpu0.name=Tesla T4
gpu0.uuid=GPU-aaaa1111-0000-0000-0000-000000000000
gpu0.total={15360 * MIB}
gpu0.reserved={450 * MIB}
gpu0.free={14900 * MIB}
gpu0.used={10 * MIB}
gpu0.cc=7.5
gpu1.name=Tesla T4
gpu1.uuid=GPU-bbbb2222-0000-0000-0000-000000000000
gpu1.total={15360 * MIB}
gpu1.reserved={450 * MIB}
gpu1.free={4910 * MIB}
gpu1.used={10000 * MIB}
gpu1.cc=7.5
gpu1.compute=4000000001:{10000 * MIB}
"""

SLICED = f"""
count=2
gpu0.name=NVIDIA A100-SXM4-40GB
gpu0.uuid=GPU-cccc3333-0000-0000-0000-000000000000
gpu0.total={40960 * MIB}
gpu0.free={40000 * MIB}
gpu0.cc=8.0
gpu0.mig=1
gpu0.places=7
gpu0.mig0.name=NVIDIA A100-SXM4-40GB MIG 3g.20gb
gpu0.mig0.uuid=MIG-dddd4444-0000-0000-0000-000000000000
gpu0.mig0.gi=1
gpu0.mig0.ci=0
gpu0.mig0.total={20096 * MIB}
gpu0.mig0.free={20000 * MIB}
gpu0.mig0.used={20 * MIB}
gpu0.mig2.name=NVIDIA A100-SXM4-40GB MIG 1g.5gb
gpu0.mig2.uuid=MIG-eeee5555-0000-0000-0000-000000000000
gpu0.mig2.gi=9
gpu0.mig2.ci=0
gpu0.mig2.total={4864 * MIB}
gpu0.mig2.free={2000 * MIB}
gpu0.mig2.used={2800 * MIB}
gpu0.mig2.compute=4000000009:{2800 * MIB}
gpu1.name=NVIDIA A100-SXM4-40GB
gpu1.uuid=GPU-ffff6666-0000-0000-0000-000000000000
gpu1.total={40960 * MIB}
gpu1.free={40000 * MIB}
gpu1.cc=8.0
gpu1.mig=0
"""


@pytest.fixture
def ask(nvml_stub):
    """A function from a script to the GPUs and notes that a new process reads."""

    def run(script, **environ):
        env = nvml_stub(script, **environ)
        done = subprocess.run(
            [sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        gpus, notes = json.loads(done.stdout)
        # By these words `declare_machine` knows which notes a declared GPU settles.
        assert all("GPU" in note or "MIG" in note for note in notes)
        return gpus, notes

    return run


def test_every_card_tells_its_memory_name_and_capability(ask):
    gpus, notes = ask(TWO_GPUS)

    assert notes == []
    assert [gpu["index"] for gpu in gpus] == [0, 1]
    first = gpus[0]
    assert first["name"] == "Tesla T4"
    assert first["uuid"] == "GPU-aaaa1111-0000-0000-0000-000000000000"
    assert first["compute_capability"] == [7, 5]
    assert first["origin"] == "measured"
    assert not first["is_mig"]


def test_what_the_driver_reserves_is_neither_free_nor_used(ask):
    (first, _), _ = ask(TWO_GPUS)

    assert first["total_bytes"] == 15360 * MIB
    assert first["free_bytes"] == 14900 * MIB
    assert first["used_bytes"] == 10 * MIB


def test_an_older_driver_tells_memory_the_old_way(ask):
    (first, _), notes = ask(TWO_GPUS + "error.nvmlDeviceGetMemoryInfo_v2=13")

    assert notes == []
    assert first["free_bytes"] == 14900 * MIB
    assert first["used_bytes"] == 460 * MIB


def test_processes_that_hold_memory_are_named(ask):
    own = os.getpid()
    script = TWO_GPUS + f"gpu0.compute={own}:{300 * MIB}"

    (first, second), _ = ask(script)

    (process,) = first["processes"]
    assert process["pid"] == own
    assert process["used_bytes"] == 300 * MIB
    assert process["name"]
    assert second["processes"] == [
        {"pid": 4000000001, "name": None, "used_bytes": 10000 * MIB},
    ]


def test_a_process_in_both_lists_is_counted_once_and_the_largest_comes_first(ask):
    script = TWO_GPUS + (
        "gpu0.compute=4000000001:500,4000000002:900\n"
        "gpu0.graphics=4000000001:500,4000000003:?,4000000004:700"
    )

    (first, _), _ = ask(script)

    held = [(process["pid"], process["used_bytes"]) for process in first["processes"]]
    assert held == [
        (4000000002, 900),
        (4000000004, 700),
        (4000000001, 500),
        (4000000003, None),
    ]


def test_an_older_driver_lists_processes_with_an_older_function(ask):
    script = TWO_GPUS + (
        "error.nvmlDeviceGetComputeRunningProcesses_v3=13\n"
        "error.nvmlDeviceGetGraphicsRunningProcesses_v3=13"
    )

    (_, second), _ = ask(script)

    assert [process["pid"] for process in second["processes"]] == [4000000001]


def test_processes_are_unknown_where_the_driver_does_not_list_them(ask):
    script = TWO_GPUS + (
        "error.nvmlDeviceGetComputeRunningProcesses_v3=4\n"
        "error.nvmlDeviceGetGraphicsRunningProcesses_v3=3"
    )

    gpus, _ = ask(script)

    assert [gpu["processes"] for gpu in gpus] == [None, None]


def test_no_process_is_a_fact_on_an_idle_card(ask):
    (first, _), notes = ask(TWO_GPUS)

    assert first["processes"] == []
    assert notes == []


def test_memory_in_use_by_nobody_means_that_processes_are_hidden(ask):
    script = TWO_GPUS.replace("gpu1.compute", "gpu1.hidden")

    (_, second), notes = ask(script)

    assert second["processes"] is None
    assert notes == [
        "9.77 GiB of GPU 1 (Tesla T4) is in use by processes that the driver does not show, "
        "as in a container."
    ]


def test_cuda_visible_devices_is_honoured(ask):
    gpus, _ = ask(TWO_GPUS, CUDA_VISIBLE_DEVICES="1,0")

    assert [(gpu["index"], gpu["uuid"][:8]) for gpu in gpus] == [(0, "GPU-bbbb"), (1, "GPU-aaaa")]


def test_a_card_in_mig_mode_is_seen_through_its_first_slice(ask):
    (only,), notes = ask(SLICED)

    assert only["is_mig"]
    assert only["name"] == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert only["total_bytes"] == 20096 * MIB
    assert only["compute_capability"] == [8, 0]
    assert "one MIG slice at a time" in notes[0]


@pytest.mark.parametrize(
    "entry", ["MIG-eeee5555", "MIG-GPU-cccc3333-0000-0000-0000-000000000000/9/0"]
)
def test_a_slice_can_be_named(ask, entry):
    (only,), notes = ask(SLICED, CUDA_VISIBLE_DEVICES=entry)

    assert only["uuid"] == "MIG-eeee5555-0000-0000-0000-000000000000"
    assert only["free_bytes"] == 2000 * MIB
    assert [process["pid"] for process in only["processes"]] == [4000000009]
    assert notes == []


def test_a_slices_processes_are_picked_from_its_cards_list_if_need_be(ask):
    script = SLICED + (
        "gpu0.mig2.error.nvmlDeviceGetComputeRunningProcesses_v3=3\n"
        "gpu0.mig2.error.nvmlDeviceGetGraphicsRunningProcesses_v3=3\n"
        "gpu0.compute=4000000005:100@1,4000000006:200@9"
    )

    (only,), _ = ask(script, CUDA_VISIBLE_DEVICES="MIG-eeee5555")

    assert [process["pid"] for process in only["processes"]] == [4000000006]


def test_a_whole_card_beside_a_split_one_can_be_named(ask):
    (only,), notes = ask(SLICED, CUDA_VISIBLE_DEVICES="1")

    assert not only["is_mig"]
    assert only["uuid"].startswith("GPU-ffff")
    assert notes == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (9, "installed but not loaded"),
        (18, "different versions"),
        (4, "denies access"),
        (15, "A GPU is lost"),
        (999, "cannot be asked (Unknown Error)"),
        (77, "cannot be asked (scripted error)"),
    ],
)
def test_a_driver_that_does_not_open_is_a_note(ask, code, expected):
    gpus, (note,) = ask(f"error.nvmlInitWithFlags={code}")

    assert gpus == []
    assert expected in note


def test_no_driver_at_all_is_a_note(tmp_path):
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True
    )
    gpus, notes = json.loads(done.stdout)
    if gpus or "No NVIDIA driver" not in notes[0]:
        pytest.skip("this machine has an NVIDIA driver")

    assert notes == ["No NVIDIA driver was found, so GPU memory is unknown."]


def test_a_driver_without_cards_is_a_note(ask):
    assert ask("count=0") == (
        [],
        ["The NVIDIA driver is loaded but shows no GPU; pass --vram to check a card."],
    )


def test_cards_that_cannot_be_counted_are_a_note(ask):
    gpus, (note,) = ask("error.nvmlDeviceGetCount_v2=999")

    assert gpus == []
    assert "Unknown Error" in note


def test_a_lost_card_is_left_out_and_the_others_keep_their_numbers(ask):
    script = TWO_GPUS + "gpu0.error.nvmlDeviceGetHandleByIndex_v2=15"

    (only,), notes = ask(script, CUDA_VISIBLE_DEVICES="1")

    assert only["uuid"].startswith("GPU-bbbb")
    assert notes == ["GPU 0 does not answer (GPU is lost), so it is left out."]


def test_a_card_lost_while_it_is_asked_has_unknown_memory(ask):
    script = TWO_GPUS + (
        "gpu0.error.nvmlDeviceGetMemoryInfo_v2=15\ngpu0.error.nvmlDeviceGetMemoryInfo=15"
    )

    (first, second), notes = ask(script)

    assert (first["total_bytes"], first["free_bytes"], first["used_bytes"]) == (None, None, None)
    assert second["total_bytes"] == 15360 * MIB
    assert notes == ["The memory of GPU 0 (Tesla T4) is unknown: GPU is lost."]


@pytest.mark.parametrize(
    "how",
    [
        "error.nvmlDeviceGetMemoryInfo_v2=3\nerror.nvmlDeviceGetMemoryInfo=3",
        "gpu0.total=0\ngpu0.free=0",
    ],
)
def test_memory_shared_with_the_system_is_unknown_and_to_be_counted_once(ask, how):
    script = f"count=1\ngpu0.name=NVIDIA GB10\ngpu0.cc=12.1\n{how}"

    (only,), notes = ask(script)

    assert (only["total_bytes"], only["free_bytes"]) == (None, None)
    assert only["compute_capability"] == [12, 1]
    assert "count RAM once" in notes[0]


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetMigMode",
        "nvmlShutdown",
    ],
)
def test_no_single_function_is_needed(ask, function):
    gpus, _ = ask(TWO_GPUS + f"error.{function}=999")

    assert [gpu["free_bytes"] for gpu in gpus] == [14900 * MIB, 4910 * MIB]


def test_a_name_that_is_no_text_does_not_stop_the_probe(nvml_stub):
    env = nvml_stub(TWO_GPUS)
    with open(env["NVML_STUB"], "rb+") as file:
        content = file.read().replace(b"gpu0.name=Tesla T4", b"gpu0.name=\xff\xfe")
        file.seek(0)
        file.write(content)
        file.truncate()

    done = subprocess.run(
        [sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True
    )

    gpus, _ = json.loads(done.stdout)
    assert [gpu["name"] for gpu in gpus] == ["GPU 0", "Tesla T4"]


@pytest.mark.parametrize("also", ["", "error.nvmlDeviceGetCount_v2=15"])
def test_nvml_is_closed_again(ask, tmp_path, also):
    log = tmp_path / "log"

    ask(f"{TWO_GPUS}\nlog={log}\n{also}")

    assert log.read_text().split() == ["init", "shutdown"]


def test_a_surprise_inside_the_binding_is_a_note_too():
    def fail():
        raise RuntimeError("no such thing")

    gpus, (note,) = read_gpus(types.SimpleNamespace(nvmlInit=fail), {})

    assert gpus == ()
    assert "no such thing" in note


def test_importing_the_module_opens_nothing():
    script = "import sys, oomdoctor.probe.gpu; print({'pynvml', 'psutil'} & set(sys.modules))"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "set()"


def test_a_card_with_eighty_gibibytes_is_not_cut_to_32_bits(ask):
    script = f"count=1\ngpu0.name=NVIDIA H100 80GB HBM3\ngpu0.total={80 * GIB}\ngpu0.free=1"

    (only,), _ = ask(script)

    assert only["total_bytes"] == 80 * GIB
