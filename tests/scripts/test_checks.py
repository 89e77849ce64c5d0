"""What the checks find in code as people write it, and what they leave alone."""

import textwrap

import pytest

from oomdoctor.scripts.scan import check_source

HEAD = """\
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers
"""


def found(code):
    """Return the checks that find something, but for the one that every training script trips."""
    matches = check_source(HEAD + textwrap.dedent(code))
    return [match.check for match in matches if match.check != "growth-not-set"]


FOUND = {
    "the_tutorial_that_caches_and_shuffles_batches": (
        """
        train_ds = keras.utils.image_dataset_from_directory("data", batch_size=32)
        train_ds = train_ds.cache().shuffle(1000).prefetch(tf.data.AUTOTUNE)
        """,
        ["cache-of-batches", "shuffle-of-whole-batches"],
    ),
    "a_dataset_by_another_name": (
        """
        from tensorflow.data import Dataset as Data
        from tensorflow import data as pipelines
        a = list(Data.from_generator(make, output_types=tf.float32))
        b = list(pipelines.TFRecordDataset(files))
        """,
        ["dataset-held-in-list"] * 2,
    ),
    "a_pipeline_that_a_function_returns": (
        """
        def load(path):
            ds = tf.data.TFRecordDataset(path)
            return ds.map(parse).batch(32)

        def main():
            train = load("train.tfrecord")
            train = train.cache()

        main()
        """,
        ["cache-of-batches"],
    ),
    "a_pipeline_given_as_an_argument": (
        """
        def prepare(ds):
            return ds.batch(32).cache()

        prepare(make_dataset())
        """,
        ["cache-of-batches"],
    ),
    "an_annotated_argument": (
        "def prepare(ds: tf.data.Dataset):\n    return ds.cache()\n",
        ["cache-in-ram"],
    ),
    "a_dataset_kept_by_a_loop": (
        """
        ds = tf.data.TFRecordDataset("a").map(parse).batch(32)
        images, labels = [], []
        for x, y in ds:
            images.append(x.numpy())
            labels.append(y.numpy())
        """,
        ["dataset-held-in-list"],
    ),
    "a_comprehension_over_a_dataset": (
        """
        import tensorflow_datasets as tfds
        ds = tfds.load("cats", split="train")
        x = np.concatenate([x for x, y in ds])
        y = np.concatenate([y for x, y in ds])
        """,
        ["dataset-held-in-list"],
    ),
    "arrays_split_and_trained_on": (
        """
        from sklearn.model_selection import train_test_split
        x, y = np.load("x.npy"), np.load("y.npy")
        x_train, x_test, y_train, y_test = train_test_split(x, y)
        model = keras.Sequential([layers.Dense(1)])
        model.fit(x_train, y_train)
        """,
        ["load-without-memory-map"],
    ),
    "a_packed_array": (
        """
        data = np.load("data.npz")
        model = keras.Sequential()
        model.fit(data["x"], data["y"])
        """,
        ["load-without-memory-map"],
    ),
    "a_model_known_by_how_it_is_fitted": (
        """
        from models import build
        x = np.load("x.npy")
        build().fit(x, y, epochs=3, validation_data=(x, y))
        """,
        ["load-without-memory-map"],
    ),
    "pictures_read_by_a_function": (
        """
        from tensorflow.keras.preprocessing.image import img_to_array, load_img

        def read(path):
            return img_to_array(load_img(path, target_size=(64, 64)))

        x = np.stack([read(path) for path in paths])
        model = keras.Sequential()
        model.fit(x, y)
        """,
        ["pictures-read-into-list"],
    ),
    "pixels_of_an_array_of_unknown_dtype": ("x = np.load('x.npy') / 255.0", ["bytes-to-float64"]),
    "pixels_scaled_around_zero": (
        "(x, y), _ = keras.datasets.cifar100.load_data()\nx = (x - 127.5) / 127.5",
        ["bytes-to-float64"],
    ),
    "arrays_given_to_a_generator_of_keras": (
        """
        from keras.preprocessing.image import ImageDataGenerator
        x = np.load("x.npy")
        batches = ImageDataGenerator(rotation_range=5).flow(x, y, batch_size=32)
        """,
        ["load-without-memory-map"],
    ),
    "decoded_pictures_shuffled_whole": (
        """
        ds = tf.data.Dataset.from_tensor_slices(paths).map(read).shuffle(len(paths))
        """,
        ["shuffle-of-everything"],
    ),
    "an_hdf5_dataset_read_whole": (
        """
        import h5py
        with h5py.File("data.h5") as file:
            ds = tf.data.Dataset.from_tensor_slices(file["x"][:])
        """,
        ["slices-of-whole-array"],
    ),
    "an_agent_that_asks_its_model_for_each_step": (
        """
        class Agent:
            def __init__(self):
                self.model = self.build()

            def build(self):
                model = keras.Sequential([layers.Dense(4)])
                model.compile("adam", "mse")
                return model

            def replay(self, batch):
                for state, action, reward, after in batch:
                    target = reward + np.amax(self.model.predict(after)[0])
        """,
        ["predict-in-loop"],
    ),
    "folds_that_build_a_model_each": (
        """
        def build():
            model = keras.Sequential([layers.Dense(4)])
            model.compile("adam", "mse")
            return model

        for train, test in folds:
            model = build()
            model.fit(x[train], y[train])
        """,
        ["model-built-in-loop"],
    ),
    "a_subclassed_model_built_for_each_trial": (
        """
        class Net(keras.Model):
            def call(self, x):
                return x

        for units in (8, 16):
            net = Net()
            net.fit(x, y)
        """,
        ["model-built-in-loop"],
    ),
    "outputs_kept_while_evaluating": (
        """
        model = keras.models.load_model("m")
        outputs = []
        for x, y in tf.data.TFRecordDataset("a").map(parse).batch(8):
            outputs.append(model(x))
        """,
        ["tensor-kept-in-loop"],
    ),
    "losses_of_a_traced_step": (
        """
        @tf.function
        def step(x):
            return tf.reduce_mean(x)

        losses = []
        for epoch in range(10):
            for x in batches:
                losses.append(step(x))
        """,
        ["tensor-kept-in-loop"],
    ),
    "a_function_traced_in_a_loop": (
        "for f in functions:\n    g = tf.function(f)\n    g(1.0)\n",
        ["function-made-in-loop"],
    ),
    "a_counter_given_to_a_traced_method": (
        """
        class Trainer:
            @tf.function
            def step(self, x, number):
                return x * number

            def train(self, batches):
                for number, x in enumerate(batches):
                    self.step(x, number)
        """,
        ["retraced-for-each-number"],
    ),
    "a_batch_that_old_replicas_cannot_share": (
        """
        from keras.utils import multi_gpu_model
        model = multi_gpu_model(keras.models.load_model("m"), gpus=3)
        model.fit(x, y, batch_size=32)
        """,
        ["split-that-does-not-divide"],
    ),
    "a_tensor_split_into_parts_that_do_not_divide": (
        """
        for x in tf.data.TFRecordDataset("a").map(parse).batch(50):
            for part in tf.split(x, 4):
                work(part)
        """,
        ["split-that-does-not-divide"],
    ),
    "a_distributed_dataset_with_a_partial_batch": (
        """
        strategy = tf.distribute.MirroredStrategy()
        ds = tf.data.TFRecordDataset("a").map(parse).batch(64)
        ds = strategy.experimental_distribute_dataset(ds)
        """,
        ["partial-batch-under-strategy"],
    ),
    "a_mapped_array_made_a_tensor": (
        "x = np.load('x.npy', mmap_mode='r')\nt = tf.convert_to_tensor(x)",
        ["array-as-constant"],
    ),
}

CLEAN = {
    "file_names_shuffled_whole": """
        files = tf.data.Dataset.list_files("data/*")
        ds = files.shuffle(files.cardinality()).map(read).batch(32)
        """,
    "one_branch_batches_and_the_other_caches": """
        ds = tf.data.TFRecordDataset("a")
        if training:
            ds = ds.batch(32)
        else:
            ds = ds.cache("file")
        ds = ds.cache("other")
        """,
    "a_cache_in_the_branch_that_does_not_batch": """
        def prepare(ds, batched):
            if batched:
                return ds.batch(32)
            return ds.map(f, num_parallel_calls=2).cache("file")
        """,
    "a_few_elements": """
        ds = tf.data.TFRecordDataset("a").take(5)
        print(list(ds.as_numpy_iterator()))
        images = [x for x in ds]
        """,
    "a_small_dataset": """
        ds = tf.data.Dataset.range(10).batch(2).cache().shuffle(100)
        print(list(ds))
        """,
    "mnist": """
        (x, y), _ = keras.datasets.mnist.load_data()
        x = x / 255.0
        ds = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(len(x)).batch(32)
        """,
    "float32": "x = np.load('x.npy').astype('float32') / 255.0",
    "another_library": """
        import datasets
        ds = datasets.load_dataset("x").map(f).batch(32).cache()
        from sklearn.ensemble import RandomForestClassifier
        x = np.load("x.npy")
        RandomForestClassifier().fit(x, y)
        for row in x:
            RandomForestClassifier().predict(row)
        """,
    "parts_of_the_data_one_after_the_other": """
        model = keras.Sequential()
        for part in parts:
            x = np.load(part)
            model.fit(x, y, epochs=1)
        """,
    "one_file_for_each_sample": """
        def read(path):
            return np.load(path) / 255.0
        """,
    "layers_of_a_model": """
        class Net(keras.Model):
            def __init__(self):
                super().__init__()
                self.blocks = []
                for units in (8, 16):
                    self.blocks.append(keras.Sequential([layers.Dense(units)]))

            def call(self, x):
                outputs = []
                for block in self.blocks:
                    x = block(x)
                    outputs.append(x)
                return outputs
        """,
    "a_functional_model": """
        x = inputs = keras.Input((32, 32, 3))
        skips = []
        for filters in (8, 16):
            x = layers.Conv2D(filters, 3)(x)
            skips.append(x)
        model = keras.Model(inputs, skips)
        model.fit(ds)
        """,
    "trials_that_clear_the_session": """
        for units in (8, 16):
            keras.backend.clear_session()
            model = keras.Sequential([layers.Dense(units)])
            model.fit(ds)
        """,
    "one_prediction_for_each_epoch": """
        model = keras.Sequential()
        for epoch in range(10):
            model.fit(ds, epochs=1)
            print(model.predict(x_val))
        """,
    "numbers_kept_instead_of_tensors": """
        loss_fn = keras.losses.MeanSquaredError()
        model = keras.Sequential()
        losses, outputs = [], []
        for x, y in tf.data.TFRecordDataset("a").map(parse).batch(8):
            with tf.GradientTape() as tape:
                out = model(x)
                loss = loss_fn(y, out)
            losses.append(float(loss))
            outputs.append(out.numpy())
        """,
    "a_list_of_each_turn": """
        model = keras.Sequential()
        for x, y in tf.data.TFRecordDataset("a").map(parse).batch(8):
            outputs = []
            outputs.append(model(x))
        """,
    "a_traced_function_with_a_signature": """
        @tf.function(input_signature=[tf.TensorSpec((), tf.int32)])
        def step(number):
            return number

        for number in range(100):
            step(number)
        """,
    "a_constant_number": """
        @tf.function
        def step(x, rate):
            return x * rate

        for x in batches:
            step(x, 0.1)
        """,
    "batches_that_divide": """
        strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
        with strategy.scope():
            model = keras.Sequential()
        ds = tf.data.TFRecordDataset("a").map(parse).batch(64, drop_remainder=True)
        model.fit(ds)
        """,
    "names_that_only_look_alike": """
        class Shop:
            def cache(self):
                return list(self.items)

            def fit(self, x):
                return x

        shop = Shop()
        shop.cache()
        shop.fit(np.load("x.npy"))
        text = "list(ds.as_numpy_iterator())"
        """,
    "labels_and_names": """
        ds = keras.utils.image_dataset_from_directory("data")
        names = list(ds.class_names)
        y = np.concatenate([y for x, y in ds])
        """,
    "a_loader_that_does_not_batch": """
        ds = keras.utils.image_dataset_from_directory("data", batch_size=None)
        ds = ds.shuffle(1000).batch(32)
        """,
    "file_names_shuffled_before_they_are_read": """
        ds = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).map(read).batch(32)
        """,
    "what_apply_may_have_unbatched": """
        ds = tf.data.TFRecordDataset("a").batch(7)
        ds = ds.apply(tf.data.experimental.unbatch()).shuffle(1000)
        """,
    "a_shuffle_after_unbatch": """
        ds = keras.utils.image_dataset_from_directory("data")
        ds = ds.unbatch().shuffle(1000).batch(32)
        """,
}


@pytest.mark.parametrize(("code", "expected"), FOUND.values(), ids=FOUND)
def test_it_is_found(code, expected):
    assert found(code) == expected


@pytest.mark.parametrize("code", CLEAN.values(), ids=CLEAN)
def test_it_is_left_alone(code):
    assert found(code) == []


def test_a_place_is_that_of_the_method_in_a_chain_counted_in_characters():
    (match,) = check_source(
        "import tensorflow as tf\n"
        "é = (\n"
        "    tf.data.TFRecordDataset('ä')\n"
        "    .batch(32)  # é\n"
        "    .cache()\n"
        ")\n"
    )

    assert (match.line, match.column) == (5, 6)
    assert match.text == "tf.data.TFRecordDataset('ä').batch(32).cache()"


def test_a_script_that_trains_and_does_not_limit_gpu_memory_is_noted_once():
    train = "model = keras.Sequential()\nmodel.fit(ds)\nmodel.fit(ds)\n"
    grows = "tf.config.experimental.set_memory_growth(gpu, True)\n"
    by_name = 'import os\nos.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"\n'

    def noted(code):
        return [match.line for match in check_source(HEAD + code)]

    assert noted(train) == [2]
    assert noted(grows + train) == noted(by_name + train) == []


def test_recursion_and_endless_growth_end():
    code = "a = 9\n" + "a = a * a\n" * 200
    code += "def f(x):\n    return f(x)\nf(1)\n"
    code += "def g():\n    return h()\ndef h():\n    return g()\ng()\n"

    assert found(code) == []
