import re
from dataclasses import replace

import pytest

from oomdoctor import recording
from oomdoctor.advise.vocabulary import FACTS, values
from oomdoctor.facts import (
    Diagnosis,
    Estimate,
    Facts,
    Feeding,
    FileGroup,
    Footprint,
    Gpu,
    GpuProcess,
    GroupFootprint,
    Growth,
    Inventory,
    Machine,
    Memory,
    OtherProgram,
    ShapeSpread,
    Sharding,
    Stage,
    Workload,
)

GIB = 2**30
RESERVED = 7
KINDS = {
    "bytes": int,
    "count": int,
    "version": int,
    "ratio": float,
    "text": str,
    "flag": bool,
}


def gpu(index=0, *, free=10, capability=(7, 5), name="T4", processes=()):
    return Gpu(
        index=index,
        name=name,
        total_bytes=16 * GIB,
        free_bytes=None if free is None else free * GIB,
        reserved_bytes=RESERVED,
        used_bytes=5,
        compute_capability=capability,
        processes=processes,
    )


def machine(*gpus):
    ram = Memory(
        total_bytes=16 * GIB,
        available_bytes=12 * GIB,
        limit_bytes=14 * GIB,
        limit_source="cgroup memory.max",
        swap_total_bytes=0,
    )
    return Facts(machine=Machine(ram=ram, gpus=gpus, cpu_count=2))


def group(name, *, format_="npy", kind="array", stored=100, dtype="float32", shape=(4, 4), **more):
    shapes = ShapeSpread(smallest=shape, median=shape, largest=shape, most_common=shape, distinct=1)
    return FileGroup(
        name=name,
        format=format_,
        kind=kind,
        files=1,
        samples=10,
        stored_bytes=stored,
        elements=160,
        dtype=dtype,
        shapes=more.pop("shapes", shapes),
        **more,
    )


def held(name, decoded=640, *, is_whole=True, dtype="float32", shape=(4, 4)):
    return GroupFootprint(
        name=name,
        shape=shape,
        dtype=dtype,
        decoded_bytes=decoded,
        low_bytes=decoded,
        high_bytes=decoded,
        native_bytes=decoded,
        largest_sample_bytes=64,
        is_whole=is_whole,
        in_fit=True,
    )


def footprint(*groups, load="memory", stages=(), feedings=(), chosen=None):
    return Footprint(
        decoded_bytes=1280,
        low_bytes=1280,
        high_bytes=1280,
        native_bytes=1280,
        keras_loader_bytes=99,
        sample_bytes=64,
        largest_sample_bytes=64,
        batch_bytes=256,
        batch_size=4,
        load=load,
        groups=groups,
        feedings=feedings,
        chosen=chosen,
        stages=stages,
    )


def inventory(*groups, root="data"):
    stored = sum(each.stored_bytes for each in groups)
    return Inventory(root=root, groups=groups, files=len(groups), stored_bytes=stored)


def everything():
    """Facts with something in every section."""
    feeding = {"ram_verdict": "fits", "vram_verdict": "fits", "detail": ""}
    ways = tuple(
        Feeding(way=way, ram_bytes=7, vram_bytes=8, **feeding)
        for way in ("memory", "device", "stream")
    )
    stages = (
        Stage(kind="tensors", label="from_tensor_slices(...)", elements=10, held_bytes=640),
        Stage(kind="shuffle", label="shuffle(5)", elements=5, held_bytes=320),
        Stage(kind="cache", label="cache()", elements=10, held_bytes=640, is_batched=True),
        Stage(kind="prefetch", label="prefetch(2)", elements=2, held_bytes=512),
    )
    return Facts(
        machine=machine(gpu(processes=(GpuProcess(pid=1, name="python", used_bytes=GIB),))).machine,
        inventory=inventory(
            group("x.npy"),
            group("y.npy", role="targets"),
            group("pictures", kind="image", shape=(4, 5, 3)),
        ),
        footprint=footprint(
            held("x.npy"),
            held("y.npy", 1),
            held("pictures"),
            stages=stages,
            feedings=ways,
            chosen=ways[0],
        ),
        workload=Workload(
            model="net",
            weights_bytes=1,
            trainable_bytes=1,
            optimizer="adam",
            optimizer_bytes=2,
            precision="float32",
            input_shape=(224, 200, 3),
            has_batch_norm=True,
            replicas=3,
            batch_size=4,
        ),
        growth=Growth(recorded_bytes=2 * GIB, peak_bytes=3 * GIB, tolerance=0.05),
        estimate=Estimate(
            batch_size=4,
            peak_bytes=10,
            low_bytes=9,
            high_bytes=11,
            parts=(("weights", 1), ("gradients", 1), ("optimizer", 2), ("activations", 6)),
            largest_tensor_bytes=3,
            per_sample_bytes=1,
            other=OtherProgram(program="xla", peak_bytes=8, low_bytes=7, high_bytes=9),
        ),
        sharding=Sharding(card="h100", card_bytes=8, split_bytes=16, whole_bytes=1, cards=3),
        diagnosis=Diagnosis(
            cause="gpu_exhausted",
            confidence=1.0,
            requested_bytes=1,
            shape=(32, 8),
            device="GPU:0",
            op="conv",
            layer="conv1",
            limit_bytes=2,
            in_use_bytes=1,
        ),
        profile=recorded(),
        versions=(("tensorflow-cpu", "2.21.0"), ("keras", "3.15.1")),
    )


def recorded():
    """A recorded run with a cache that filled, and something that may be kept."""
    growth = recording.Growth(
        what="host",
        kind="cache",
        start_seconds=1.0,
        end_seconds=2.0,
        start_bytes=GIB,
        end_bytes=2 * GIB,
        bytes_per_step=1.5,
        bytes_per_epoch=15.5,
    )
    run = recording.Recording(
        command=("python", "train.py"),
        started_at=0.0,
        samples=(recording.Sample(seconds=1.0, rss_bytes=2 * GIB),),
        limits=(recording.Limit(what="host", limit_bytes=3 * GIB, source="--ram"),),
        suspects=(recording.Suspect(kind="tensors_kept", what="losses (list)", count=9),),
        pipeline=(recording.Holding(kind="cache", label="cache()", held_bytes=GIB),),
    )
    return recording.Profile(recording=run, growths=(growth,))


# --------------------------------------------------------------------------- the table


def test_names_have_two_levels_and_units_that_match_their_kind():
    for name, fact in FACTS.items():
        assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", name)
        assert fact.kind in KINDS
        assert name.endswith("_bytes") == (fact.kind == "bytes"), name
        assert fact.meaning
        assert fact.how_to_get


def test_every_fact_of_the_vocabulary_is_given_and_nothing_else():
    assert list(values(Facts())) != []
    assert set(values(Facts())) == set(FACTS)
    assert set(values(everything(), purpose="train")) == set(FACTS)


def test_nothing_known_gives_nothing_but_unknown():
    assert set(values(Facts()).values()) == {None}


def test_facts_with_everything_leave_nothing_unknown_and_have_their_kinds():
    picture = group("train", format_="image", kind="image", shape=(4, 4, 3), dtype="uint8")
    of_pictures = data([picture], [held("train", shape=(4, 4, 3))])
    flat = values(everything(), purpose="train")
    for name, value in flat.items():
        known = of_pictures[name] if value is None else value
        if known is None:
            assert "unknown if none" in FACTS[name].meaning or "unknown if they" in (
                FACTS[name].meaning
            )
        else:
            assert type(known) is KINDS[FACTS[name].kind], name


# --------------------------------------------------------------------------- the machine


def test_no_gpu_seen_is_unknown_rather_than_zero():
    flat = values(machine())

    assert flat["machine.gpu_count"] is None
    assert flat["machine.gpu_free_bytes"] is None
    assert flat["machine.has_tensor_cores"] is None


def test_the_tightest_gpu_stands_for_all():
    busy = gpu(1, free=2, processes=(GpuProcess(pid=1, name=None, used_bytes=3 * GIB),))
    flat = values(machine(gpu(), busy))

    assert flat["machine.gpu_count"] == 2
    assert flat["machine.gpu_free_bytes"] == 2 * GIB
    assert flat["machine.gpu_usable_bytes"] == 2 * GIB - RESERVED
    assert flat["machine.gpu_other_process_bytes"] == 3 * GIB


def test_the_least_of_sizes_is_unknown_while_one_of_them_is():
    assert values(machine(gpu(), gpu(1, free=None)))["machine.gpu_free_bytes"] is None


@pytest.mark.parametrize(
    ("processes", "held_bytes"),
    [
        (None, None),
        ((), 0),
        ((GpuProcess(pid=1, name=None, used_bytes=None),), None),
        (
            (
                GpuProcess(pid=1, name=None, used_bytes=None),
                GpuProcess(pid=2, name=None, used_bytes=7),
            ),
            7,
        ),
    ],
)
def test_memory_of_other_processes_is_what_the_driver_tells(processes, held_bytes):
    flat = values(machine(gpu(processes=processes)))

    assert flat["machine.gpu_other_process_bytes"] == held_bytes


@pytest.mark.parametrize(
    ("capability", "name", "has"),
    [
        ((7, 0), "V100", True),
        ((6, 1), "GTX 1080", False),
        ((7, 5), "GTX 1660 Ti", False),
        (None, "some card", None),
    ],
)
def test_tensor_cores_are_told_from_the_compute_capability(capability, name, has):
    flat = values(machine(gpu(capability=capability, name=name)))

    assert flat["machine.has_tensor_cores"] is has


# --------------------------------------------------------------------------- the data


def data(groups, measured, **more):
    return values(Facts(inventory=inventory(*groups, **more), footprint=footprint(*measured)))


def test_the_largest_group_stands_for_the_dataset():
    flat = data(
        [group("small.npy"), group("big", kind="image", format_="image", dtype="uint8")],
        [held("small.npy", 10), held("big", 10_000)],
    )

    assert (flat["data.kind"], flat["data.format"]) == ("image", "image")
    assert (flat["data.dtype"], flat["data.stored_dtype"]) == ("float32", "uint8")
    assert flat["data.largest_array_bytes"] == 10


@pytest.mark.parametrize(
    ("changes", "whole", "can"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"is_compressed": True}, True, False),
        ({"format_": "npz"}, True, False),
        ({"dtype": None}, True, False),
        ({"kind": "table", "format_": "csv"}, True, False),
    ],
    ids=["npy", "streamed", "compressed", "npz", "objects", "table"],
)
def test_only_plain_npy_files_that_are_loaded_whole_can_be_mapped(changes, whole, can):
    flat = data([group("x.npy", **changes)], [held("x.npy", is_whole=whole)])

    assert flat["data.can_memory_map"] is can


@pytest.mark.parametrize(
    ("root", "name", "path"),
    [
        ("data", "x.npy", "data/x.npy"),
        ("data/x.npy", "x.npy", "data/x.npy"),
        ("data", "train", None),
    ],
)
def test_the_path_of_an_array_is_given_only_where_it_is_one_file(root, name, path):
    assert data([group(name)], [held(name)], root=root)["data.array_path"] == path


def test_the_labels_are_those_of_the_same_split():
    groups = [
        group("x_train.npy", split="train"),
        group("y_val.npy", split="validation", role="targets"),
        group("y_train.npy", split="train", role="targets"),
    ]
    measured = [held("x_train.npy", 999), held("y_val.npy", 1), held("y_train.npy", 1)]

    flat = data(groups, measured)

    assert flat["data.labels_path"] == "data/y_train.npy"
    assert data(groups[:2], measured[:2])["data.labels_path"] is None


def test_a_sum_is_unknown_when_one_term_is():
    flat = data([group("a"), group("b")], [held("a"), held("b", None)])

    assert flat["data.loaded_whole_bytes"] is None
    assert flat["data.array_bytes"] is None


def test_shapes_that_differ_are_ragged():
    ragged = ShapeSpread(
        smallest=(1, 1, 3),
        median=(30, 40, 3),
        largest=(99, 99, 3),
        most_common=(1, 1, 3),
        distinct=9,
    )
    flat = data([group("p", kind="image", shapes=ragged)], [held("p")])

    assert flat["data.is_ragged"] is True
    assert (flat["data.image_height"], flat["data.image_width"]) == (30, 40)


def test_images_are_to_be_resized_to_the_model_or_what_was_asked_or_the_default_of_keras():
    pictures = group("p", kind="image", shape=(30, 40, 3))
    resized = replace(held("p"), shape=(64, 48, 3), native_bytes=9999)
    model = Workload(model="net", input_shape=(224, 200, 3))

    def size(measured, workload=None):
        flat = values(
            Facts(inventory=inventory(pictures), footprint=footprint(measured), workload=workload)
        )
        return flat["data.loader_height"], flat["data.loader_width"]

    assert size(held("p")) == (256, 256)
    assert size(resized) == (64, 48)
    assert size(resized, model) == (224, 200)
    assert data([group("x.npy")], [held("x.npy")])["data.loader_height"] is None


def test_the_last_batch_is_split_over_the_replicas():
    # 20 samples in batches of 16 leave 4, which 3 replicas cannot share.
    facts = Facts(
        inventory=inventory(group("a"), group("b")),
        footprint=footprint(held("a"), held("b")),
        workload=Workload(model="net", replicas=3, batch_size=16),
    )

    assert values(facts)["data.replica_remainder"] == 1


# --------------------------------------------------------------------------- the pipeline


def pipeline(*stages):
    return values(Facts(footprint=footprint(stages=stages)))


def test_no_pipeline_is_unknown_and_an_absent_stage_holds_nothing():
    unknown = values(Facts(footprint=footprint()))
    batch_only = pipeline(Stage(kind="batch", label="batch(4)", elements=4, held_bytes=9))

    assert unknown["pipeline.shuffle_bytes"] is None
    assert unknown["pipeline.cache_in_memory"] is None
    assert batch_only["pipeline.shuffle_bytes"] == 0
    assert batch_only["pipeline.cache_in_memory"] is False
    assert batch_only["pipeline.total_bytes"] == 9


def test_a_cache_to_a_file_is_not_in_memory():
    flat = pipeline(Stage(kind="cache", label="cache('features')", elements=0, held_bytes=0))

    assert flat["pipeline.cache_in_memory"] is False
    assert flat["pipeline.cache_bytes"] == 0


def test_a_cache_that_grows_without_end_is_in_memory_and_its_size_unknown():
    flat = pipeline(Stage(kind="cache", label="cache()", is_batched=True))

    assert flat["pipeline.cache_in_memory"] is True
    assert flat["pipeline.cache_after_batch"] is True
    assert flat["pipeline.cache_bytes"] is None


def test_parts_of_a_step_that_are_not_told_are_unknown():
    estimate = Estimate(
        batch_size=1, peak_bytes=3, low_bytes=3, high_bytes=3, parts=(("weights", 1),)
    )

    assert values(Facts(estimate=estimate))["step.fixed_bytes"] is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2.21.0", 22100),
        ("2.16", 21600),
        ("3.0.0rc1", 30000),
        ("2.21.0+cu12", 22100),
        ("dev", None),
    ],
)
def test_versions_become_numbers_that_compare(text, number):
    assert values(Facts(versions=(("keras", text),)))["versions.keras"] == number
