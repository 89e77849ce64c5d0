"""Reports for the tests of pages: models of any size, cards, searches, data and crashes."""

from __future__ import annotations

from oomdoctor.facts import (
    Diagnosis,
    Estimate,
    Facts,
    FileGroup,
    Footprint,
    GroupFootprint,
    Inventory,
    LayerBytes,
    MemoryMap,
    ShapeSpread,
    SizeTrial,
    Tuning,
    Workload,
    verdict_of,
)
from oomdoctor.findings import Report
from oomdoctor.probe.catalogue import find_machine

MIB = 2**20
GIB = 2**30


def estimate_of(layers=(("head", 8 * MIB),), *, batch=32, fixed=300 * MIB, each=80 * MIB, **more):
    peak = fixed + batch * each
    return Estimate(
        batch_size=batch,
        peak_bytes=peak,
        low_bytes=peak * 95 // 100,
        high_bytes=peak * 106 // 100,
        parts=(("activations", peak - fixed), ("weights", fixed)),
        layers=tuple(LayerBytes(name=name, bytes_at_peak=size) for name, size in layers),
        fixed_bytes=fixed,
        per_sample_bytes=each,
        **more,
    )


def report_on(estimate, card="colab-t4", *, subject="app:build, batch 32"):
    machine = find_machine(card)
    budget = machine.usable_vram_bytes
    return Report(
        command="estimate",
        verdict=verdict_of(estimate.low_bytes, estimate.high_bytes, budget),
        facts=Facts(machine=machine, estimate=estimate, workload=Workload(model="app:build")),
        subject=subject,
        target=card,
    )


def several(reports, command="estimate"):
    return Report(command=command, verdict="fits", facts=Facts(), parts=tuple(reports))


def blocks(count):
    """Layers of a deep model, named as paths: model, block, layer."""
    return [
        (f"encoder/block_{number // 10}/layer_{number % 10}", (number % 37 + 1) * MIB)
        for number in range(count)
    ]


def tuned():
    trials = ((32, "fits", 2 * GIB), (128, "oom", None), (64, "fits", 4 * GIB))
    tuning = Tuning(
        batch_size=64,
        peak_bytes=4 * GIB,
        budget_bytes=6 * GIB,
        target_bytes=5 * GIB,
        trials=tuple(
            SizeTrial(batch_size=size, outcome=outcome, peak_bytes=peak, seconds=1.0)
            for size, outcome, peak in trials
        ),
    )
    return Report(command="tune", verdict="fits", facts=Facts(tuning=tuning), subject="app:build")


def data(files, *, name="train", distinct=900):
    """Images of many sizes: what a scan of so many files would count."""
    sizes = [(2 ** (16 + number // 2), max(1, files // 20)) for number in range(0, 20, 2)]
    group = FileGroup(
        name=name,
        format="image",
        kind="image",
        files=files,
        samples=files,
        stored_bytes=files * 2000,
        elements=files * 300_000,
        dtype="uint8",
        classes=tuple((f"{name}-{number}", files // 1000) for number in range(1000)),
        shapes=ShapeSpread(
            smallest=(90, 90, 3),
            median=(300, 300, 3),
            largest=(2000, 2000, 3),
            most_common=(300, 300, 3),
            distinct=distinct,
            sizes=tuple(sizes),
        ),
        largest_sample=f"{name}/1.png",
    )
    inventory = Inventory(root=name, groups=(group,), files=files, stored_bytes=files * 2000)
    footprint = Footprint(
        decoded_bytes=files * 1_200_000,
        low_bytes=files * 1_200_000,
        high_bytes=files * 1_200_000,
        native_bytes=files * 1_200_000,
        keras_loader_bytes=files * 786_432,
        sample_bytes=1_200_000,
        largest_sample_bytes=48_000_000,
        batch_bytes=32 * 48_000_000,
        batch_size=32,
        load="stream",
        groups=(
            GroupFootprint(
                name=name,
                shape=None,
                dtype="float32",
                decoded_bytes=files * 1_200_000,
                low_bytes=None,
                high_bytes=None,
                native_bytes=None,
                largest_sample_bytes=48_000_000,
                is_whole=False,
                in_fit=True,
            ),
        ),
    )
    facts = Facts(inventory=inventory, footprint=footprint, machine=find_machine("colab-t4"))
    return Report(command="check", verdict="unknown", facts=facts, subject=name, target="colab-t4")


def crash(name="train.py:4"):
    runs = tuple((8 * MIB, 8 * MIB * (number % 2)) for number in range(32))
    diagnosis = Diagnosis(
        cause="gpu_fragmented",
        confidence=0.9,
        requested_bytes=48 * MIB,
        limit_bytes=256 * MIB,
        in_use_bytes=128 * MIB,
        summary=f"memory of GPU:0 in one piece, asked for by {name}",
        layer=name,
        memory_map=MemoryMap(runs=runs, sizes=((8 * MIB, 16, 16),), largest_free_bytes=8 * MIB),
    )
    return Report(
        command="diagnose", verdict="does_not_fit", facts=Facts(diagnosis=diagnosis), subject=name
    )
