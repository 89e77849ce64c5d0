import pytest

import oomdoctor
from oomdoctor.facts import Estimate

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore"),  # TensorFlow's own
]


@pytest.fixture
def model():
    import keras

    built = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu", name="first"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, name="last"),
        ]
    )
    built.compile("adam", "mse")
    return built


def estimate_of(model, batch_size, **options):
    from oomdoctor.estimate.keras_model import trace_step
    from oomdoctor.estimate.simulation import Simulation
    from oomdoctor.estimate.step import estimate

    return estimate(Simulation(trace_step(model, **options), threads=2), batch_size)


def test_parts_and_layers_add_up_to_the_peak(model):
    found = estimate_of(model, 32)
    assert sum(size for _, size in found.parts) == found.peak_bytes
    assert sum(layer.bytes_at_peak for layer in found.layers) == found.peak_bytes
    assert found.low_bytes < found.peak_bytes < found.high_bytes
    assert not found.unknown_ops
    assert "first" in {layer.name for layer in found.layers}


def test_weights_and_slots_are_counted_without_running_or_building_anything(model):
    before = [value.copy() for value in model.get_weights()]
    found = dict(estimate_of(model, 1).parts)
    weights = 4 * model.count_params()
    # A bias below 512 bytes is not followed.
    assert weights - 512 <= found["weights"] <= 2 * weights + 4096
    assert found["optimizer"] >= 2 * weights - 4096  # tiny variables are not followed
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


def test_prediction_needs_less_than_training(model):
    assert estimate_of(model, 32, kind="predict").peak_bytes < estimate_of(model, 32).peak_bytes


def test_the_largest_batch_is_on_the_line_and_keeps_the_budget(model):
    found = estimate_of(model, 64)
    largest = found.largest_batch(10 * found.peak_bytes)
    assert largest > 64
    at_largest = found.fixed_bytes + largest * found.per_sample_bytes
    assert at_largest * found.high_bytes / found.peak_bytes <= 10 * found.peak_bytes


def test_no_batch_fits_a_budget_below_the_fixed_part():
    found = Estimate(
        batch_size=8, peak_bytes=1000, low_bytes=900, high_bytes=1100, fixed_bytes=500,
        per_sample_bytes=60,
    )  # fmt: skip
    assert found.largest_batch(100) == 0
    assert found.largest_batch(1100) == 8


def test_an_uncompiled_model_is_refused():
    import keras

    from oomdoctor.errors import UsageError
    from oomdoctor.estimate.keras_model import trace_step

    with pytest.raises(UsageError, match="compile"):
        trace_step(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))


def test_a_loop_over_time_holds_the_steps_it_will_go_back_through():
    import keras

    def peak(steps):
        model = keras.Sequential(
            [keras.Input((steps, 32)), keras.layers.LSTM(64), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
        return estimate_of(model, 64)

    short, long = peak(20), peak(80)
    assert not long.unknown_ops
    assert long.peak_bytes > 2 * short.peak_bytes


def test_options_build_another_model_and_leave_the_live_one_alone(model):
    plain = oomdoctor.estimate_memory(model, batch_size=32)
    lighter = oomdoctor.estimate_memory(model, batch_size=32, optimizer="sgd")
    smaller = oomdoctor.estimate_memory(model, batch_size=32, precision="mixed_float16")
    assert dict(lighter.parts)["optimizer"] < dict(plain.parts)["optimizer"] / 2
    assert smaller.peak_bytes < plain.peak_bytes
    assert type(model.optimizer).__name__ == "Adam"
    assert model.dtype_policy.name == "float32"


def test_another_input_size_changes_what_is_held():
    import keras

    model = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            keras.layers.Conv2D(8, 3),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    small = oomdoctor.estimate_memory(model, batch_size=64)
    large = oomdoctor.estimate_memory(model, batch_size=64, input_shape=(128, 128, 3))
    # The workspace of the convolution does not grow with the picture, the activations do.
    assert large.peak_bytes > 1.7 * small.peak_bytes


def test_a_precision_nobody_knows_is_refused(model):
    from oomdoctor.errors import UsageError

    with pytest.raises(UsageError, match="precision"):
        oomdoctor.estimate_memory(model, precision="float8")


def test_a_batch_larger_than_any_machine_is_estimated_too(model):
    found = estimate_of(model, 1_000_000)
    assert found.peak_bytes > 200 * 1024**3
    assert found.high_bytes > found.peak_bytes
