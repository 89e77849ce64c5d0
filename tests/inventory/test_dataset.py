"""Real tf.data pipelines, read from their objects and from their serialized graphs."""

from pathlib import Path

import numpy as np
import pytest

from oomdoctor.footprint.pipeline import bill
from oomdoctor.inventory import dataset as reading
from oomdoctor.inventory.dataset import describe, read_pipeline, read_stages, serialized_tree
from oomdoctor.inventory.dataset_nodes import plain_name

pytestmark = pytest.mark.tensorflow

IMAGES = np.zeros((100, 4, 4), "float32")  # 64 bytes each


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def slices(tf):
    return tf.data.Dataset.from_tensor_slices(IMAGES)


def generator(tf):
    def elements():
        yield IMAGES[0]

    return tf.data.Dataset.from_generator(
        elements, output_signature=tf.TensorSpec((4, 4), "float32")
    )


def only(stages, kind):
    (found,) = [stage for stage in stages if stage.kind == kind]
    return found


PIPELINES = {
    "plain": lambda tf: slices(tf).shuffle(10).batch(32).prefetch(2),
    "autotuned": lambda tf: (
        slices(tf).map(abs, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    ),
    "cached": lambda tf: slices(tf).batch(32).prefetch(1).cache(),
    "cached on disk": lambda tf: slices(tf).cache("somewhere").batch(8),
    "generator": lambda tf: generator(tf).shuffle(50).padded_batch(3),
    "endless": lambda tf: slices(tf).repeat().shuffle(1000).batch(10).take(5).skip(1),
    "repeated": lambda tf: slices(tf).repeat(3).batch(32, num_parallel_calls=2),
    "windows": lambda tf: tf.data.Dataset.range(10).window(3).flat_map(lambda each: each.batch(3)),
    "interleaved": lambda tf: tf.data.Dataset.range(4).interleave(
        lambda _: slices(tf), cycle_length=2, block_length=3, num_parallel_calls=2
    ),
    "zipped": lambda tf: tf.data.Dataset.zip((slices(tf), tf.data.Dataset.range(100))).batch(4),
    "sampled": lambda tf: tf.data.Dataset.sample_from_datasets([slices(tf), slices(tf).shuffle(7)]),
    "concatenated": lambda tf: slices(tf).concatenate(slices(tf)).shuffle(500),
    "with options": lambda tf: slices(tf).batch(5).with_options(tf.data.Options()).unbatch(),
    "enumerated": lambda tf: slices(tf).batch(2).enumerate(),
    "snapshot": lambda tf: slices(tf).snapshot("somewhere").filter(lambda each: True),
    "grouped": lambda tf: tf.data.Dataset.range(4).group_by_window(
        lambda each: each, lambda key, group: group.batch(2), window_size=3
    ),
    "ragged": lambda tf: slices(tf).ragged_batch(2),
    "pictures on disk": lambda tf: (
        tf.data.Dataset.from_tensor_slices(["a.png", "b" * 40])
        .map(lambda path: tf.zeros((3, 3)), num_parallel_calls=4)
        .batch(2)
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_objects_and_the_serialized_graph_tell_the_same(tf, name):
    dataset = PIPELINES[name](tf)
    from_objects = read_pipeline(dataset)
    from_graph = describe(serialized_tree(dataset))
    assert from_objects.stages == from_graph.stages
    assert from_objects.samples == from_graph.samples
    assert from_objects.is_infinite == from_graph.is_infinite


def test_every_stage_is_a_node_of_the_serialized_graph(tf):
    dataset = PIPELINES["plain"](tf)
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    ops = [plain_name(node.op) for node in graph.node if "Dataset" in node.op]
    assert ops == ["tensor_slice", "shuffle", "batch", "prefetch"]
    kinds = [stage.kind for stage in read_stages(dataset)]
    assert kinds == ["tensors", "shuffle", "batch", "prefetch"]


def test_calls_are_labelled_as_they_are_written(tf):
    dataset = slices(tf).map(abs, num_parallel_calls=4).shuffle(1000).batch(32).cache().repeat()
    assert [stage.label for stage in read_stages(dataset.prefetch(tf.data.AUTOTUNE))] == [
        "from_tensor_slices(...)",
        "map(..., num_parallel_calls=4)",
        "shuffle(1000)",
        "batch(32)",
        "cache()",
        "repeat()",
        "prefetch(AUTOTUNE)",
    ]


def test_a_shuffle_buffer_is_no_larger_than_what_flows_into_it(tf):
    assert only(read_stages(slices(tf).shuffle(10)), "shuffle").elements == 10
    assert only(read_stages(slices(tf).shuffle(10**6)), "shuffle").elements == 100
    assert only(read_stages(generator(tf).shuffle(10**6)), "shuffle").elements == 10**6
    whole = slices(tf).shuffle(tf.data.UNKNOWN_CARDINALITY)
    assert only(read_stages(whole), "shuffle").elements == 100


def test_after_batching_one_element_is_a_batch_even_if_the_last_is_smaller(tf):
    stages = read_stages(slices(tf).batch(32).cache().map(abs, num_parallel_calls=2))
    cache, mapped = only(stages, "cache"), only(stages, "map")
    assert (cache.elements, cache.element_bytes, cache.is_batched) == (4, 32 * 64, True)
    assert (mapped.elements, mapped.element_bytes) == (2, 32 * 64)
    assert not only(stages, "batch").is_batched


def test_a_cache_that_never_ends_is_unknown_and_says_so(tf):
    cache = only(read_stages(slices(tf).repeat().cache()), "cache")
    assert cache.elements is None
    assert "never ends" in cache.note


def test_a_cache_of_unknown_length_is_unknown(tf):
    cache = only(read_stages(generator(tf).cache()), "cache")
    assert (cache.elements, cache.note) == (None, "the number of elements is not known")


def test_a_cache_to_a_file_keeps_nothing(tf):
    cache = only(read_stages(slices(tf).cache("features")), "cache")
    assert (cache.label, cache.elements) == ("cache('features')", 0)


def test_autotune_is_left_to_tf_data(tf):
    stages = read_stages(PIPELINES["autotuned"](tf))
    assert [only(stages, kind).elements for kind in ("map", "prefetch")] == [None, None]
    assert only(stages, "prefetch").note == "AUTOTUNE: tf.data decides"


def test_a_map_is_sized_by_its_results(tf):
    stages = read_stages(PIPELINES["pictures on disk"](tf))
    assert (only(stages, "map").elements, only(stages, "map").element_bytes) == (4, 36)


def test_strings_are_traced_to_their_source(tf):
    names = tf.data.Dataset.from_tensor_slices((["a", "bc"], [0, 1])).shuffle(2)
    assert 0 < only(read_stages(names), "shuffle").element_bytes < 100


def test_strings_that_a_function_made_have_no_fixed_size(tf):
    names = tf.data.Dataset.from_tensor_slices(["a", "bc"])
    dataset = names.map(lambda name: tf.strings.join([name] * 9)).shuffle(2)
    shuffle = only(read_stages(dataset), "shuffle")
    assert (shuffle.element_bytes, shuffle.note) == (None, "the size of one element is not fixed")


def test_the_keras_loader_gets_a_whole_bill(tf):
    import keras

    folder = Path(__file__).parents[2] / "fixtures" / "datasets" / "shapes" / "train"
    dataset = keras.utils.image_dataset_from_directory(folder, batch_size=4, verbose=False)
    stages = bill(read_stages(dataset), cpu_count=2)
    assert all(stage.held_bytes is not None for stage in stages)


def test_unknown_axes_have_no_size(tf):
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(()), output_signature=tf.TensorSpec((None, 3), "float32")
    )
    assert only(read_stages(dataset.shuffle(9)), "shuffle").element_bytes is None


def test_files_of_records_are_a_reader(tf):
    stages = read_stages(tf.data.TFRecordDataset(["a", "b"]).batch(2))
    assert [(stage.kind, stage.label) for stage in stages] == [
        ("reader", "TFRecordDataset(...)"),
        ("batch", "batch(2)"),
    ]


def test_an_array_that_feeds_two_branches_is_counted_once(tf):
    source = slices(tf)
    stages = read_stages(tf.data.Dataset.zip((source.shuffle(3), source)))
    assert [stage.kind for stage in stages] == ["tensors", "shuffle", "zip"]


def test_samples_are_counted_before_batching_and_repeating(tf):
    assert read_pipeline(slices(tf).batch(32).repeat()).samples == 100
    assert read_pipeline(slices(tf).batch(10).take(3)).samples == 30
    assert read_pipeline(generator(tf).batch(10)).samples is None


def test_a_stage_that_nobody_knows_is_listed(tf):
    stage = read_stages(PIPELINES["grouped"](tf))[-1]
    assert (stage.kind, stage.elements) == ("group_by_window", None)
    assert "not known" in stage.note


def rebuilt(tf, dataset):
    return tf.data.experimental.from_variant(
        tf.data.experimental.to_variant(dataset), dataset.element_spec
    )


def test_a_small_dataset_rebuilt_from_a_variant_is_read_from_its_graph(tf):
    dataset = rebuilt(tf, slices(tf).shuffle(10)).batch(32)
    assert [stage.kind for stage in read_stages(dataset)] == ["tensors", "shuffle", "batch"]


def test_a_large_one_is_never_serialized(tf, monkeypatch):
    monkeypatch.setattr(reading, "MAX_SERIALIZED_BYTES", 6399)
    stages = read_stages(rebuilt(tf, slices(tf).shuffle(10)).batch(32))
    assert [stage.kind for stage in stages] == ["variant", "batch"]
    assert "not seen" in stages[0].note


def test_the_loader_of_keras_is_understood(tf, tmp_path):
    import keras
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.new("RGB", (10, 10)).save(tmp_path / name / f"{i}.png")
    dataset = keras.utils.image_dataset_from_directory(
        tmp_path, image_size=(8, 8), batch_size=4, verbose=False
    )
    pipeline = read_pipeline(dataset)
    assert pipeline.samples == 6
    assert only(pipeline.stages, "prefetch").element_bytes == 4 * (8 * 8 * 3 * 4 + 4)


def test_a_distributed_dataset_is_read_through(tf):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    dataset = strategy.experimental_distribute_dataset(slices(tf).shuffle(10).batch(4))
    kinds = [stage.kind for stage in read_stages(dataset)]
    assert kinds[:3] == ["tensors", "shuffle", "batch"]
