"""From recordings made by hand to growth, forecast and cause."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.profile.conclude import diagnosis_of, profile_of
from oomdoctor.profile.store import load
from oomdoctor.recording import End, Holding, Limit, Phase, Recording, Sample, Step

sys.path.insert(0, str(Path(__file__).parent))
from recordings import GIB, MIB, write_example

OOM = (
    'Traceback (most recent call last):\n  File "train.py", line 5, in <module>\n'
    "ResourceExhaustedError: OOM when allocating tensor with shape[64,131072] and type float on "
    "/job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu\n"
)


def run(sizes, *, epoch_steps=50, limit=4 * GIB, end=None, device=None, **more):
    """A recording with one step for each size, and a sample at each step."""
    steps = tuple(
        Step(
            seconds=10 + index * 0.1,
            step=index + 1,
            epoch=index // epoch_steps + 1,
            rss_bytes=int(size),
            allocator_bytes=None if device is None else int(device[index]),
        )
        for index, size in enumerate(sizes)
    )
    samples = (Sample(seconds=5.0, rss_bytes=int(sizes[0])),) if sizes else ()
    samples += tuple(Sample(seconds=step.seconds, rss_bytes=step.rss_bytes) for step in steps)
    limits = (Limit(what="host", limit_bytes=limit, source="--ram, kept by the profiler"),)
    return Recording(
        command=("python", "train.py"),
        started_at=0.0,
        samples=more.pop("samples", samples),
        steps=steps,
        limits=(*limits, *more.pop("limits", ())),
        end=end or End(seconds=100.0, exit_code=0),
        **more,
    )


def killed(by="cap"):
    return End(seconds=100.0, exit_code=137, signal="SIGKILL", killed_by=by)


def told(recording):
    return diagnosis_of(profile_of(recording))


def test_a_leak_is_forecast_by_epoch():
    profile = profile_of(run([GIB + step * MIB for step in range(200)], epochs=100))
    forecast = profile.forecasts[0]
    assert profile.leak.bytes_per_epoch == pytest.approx(50 * MIB, rel=0.1)
    # 3 GiB minus 200 MiB are left, at 50 MiB an epoch, from epoch 4 on.
    assert forecast.epoch == pytest.approx(4 + 2872 / 50, abs=3)
    assert f"near epoch {forecast.epoch}" in forecast.text
    assert "50.0 MiB per epoch" in forecast.text


def test_a_forecast_beyond_the_epochs_asked_for_says_so():
    profile = profile_of(run([GIB + step * MIB for step in range(200)], epochs=4))
    assert profile.forecasts[0].text.endswith("after the 4 epochs asked for")


def test_a_leak_between_epochs_is_found_though_each_epoch_is_flat():
    sizes = [GIB + (step // 20) * 41 * MIB for step in range(200)]
    leak = profile_of(run(sizes, epoch_steps=20)).leak
    assert leak is not None
    assert leak.bytes_per_epoch == pytest.approx(41 * MIB, rel=0.1)


def test_a_leak_that_was_not_fatal_is_told_as_a_warning():
    diagnosis = told(run([GIB + step * MIB for step in range(200)]))
    assert (diagnosis.cause, diagnosis.is_fatal) == ("leak", False)
    assert diagnosis.summary.startswith("Nothing failed")


def test_a_cache_that_rests_after_the_first_epoch_is_no_leak():
    sizes = [GIB + min(step, 50) * 30 * MIB for step in range(200)]
    profile = profile_of(run(sizes))
    assert [growth.kind for growth in profile.growths] == ["cache"]
    assert profile.forecasts == ()
    assert diagnosis_of(profile).cause == "pipeline_buffer"


def test_a_small_cache_far_from_the_limit_is_not_worth_a_remedy():
    sizes = [GIB + min(step, 50) * 3 * MIB for step in range(200)]
    assert told(run(sizes)).cause == "no_failure"


def test_growth_in_the_first_epoch_is_a_cache_where_the_pipeline_has_one():
    sizes = [GIB + step * 20 * MIB for step in range(150)]
    cache = Holding(kind="cache", label="cache()", held_bytes=None)
    with_cache = run(sizes, epoch_steps=1000, end=killed(), pipeline=(cache,))
    assert told(with_cache).cause == "pipeline_buffer"
    without = run(sizes, epoch_steps=1000, end=killed())
    assert told(without).cause == "leak"
    assert told(without).confidence < 0.7


def test_a_shuffle_buffer_is_told_from_a_big_first_step():
    samples = tuple(
        Sample(seconds=float(second), rss_bytes=GIB + max(0, second - 5) * 100 * MIB)
        for second in range(20)
    )
    phases = (Phase(kind="first_step", label="first step", start_seconds=5.0, end_seconds=None),)
    shuffle = Holding(kind="shuffle", label="shuffle(9)", held_bytes=2 * GIB)
    base = run([], samples=samples, phases=phases, fit_seconds=5.0, end=killed())
    assert told(replace(base, pipeline=(shuffle,))).cause == "pipeline_buffer"
    assert told(base).cause == "host_killed"
    small = replace(shuffle, held_bytes=MIB)
    assert told(replace(base, pipeline=(small,))).cause == "host_killed"


def test_killed_far_from_any_limit_is_not_put_down_to_memory():
    diagnosis = told(run([GIB] * 100, end=killed(by="unknown")))
    assert diagnosis.cause == "not_memory"


@pytest.mark.parametrize("by", ["kernel", "unknown"])
def test_killed_near_the_limit_is(by):
    assert told(run([3.9 * GIB] * 100, end=killed(by=by))).cause == "host_killed"


def test_a_user_who_stops_a_run_is_no_failure():
    end = End(seconds=9.0, exit_code=130, signal="SIGINT", killed_by="user")
    assert told(run([3.9 * GIB] * 100, end=end)).cause == "no_failure"


def test_an_oom_on_an_emulated_card_is_about_the_card():
    limit = Limit(what="device", limit_bytes=100 * MIB, source="--vram, kept by TensorFlow")
    end = End(seconds=9.0, exit_code=1)
    diagnosis = told(run([GIB] * 10, limits=(limit,), error=OOM, end=end))
    assert (diagnosis.cause, diagnosis.limit_bytes) == ("gpu_exhausted", 100 * MIB)
    assert "100 MiB" in diagnosis.summary
    assert not any("system RAM" in note for note in diagnosis.notes)


def test_an_oom_after_a_leak_on_the_device_is_a_leak():
    limit = Limit(what="device", limit_bytes=400 * MIB, source="--vram, kept by TensorFlow")
    device = [100 * MIB + step * MIB for step in range(200)]
    end = End(seconds=9.0, exit_code=1)
    recording = run([GIB] * 200, device=device, limits=(limit,), error=OOM, end=end)
    diagnosis = told(recording)
    assert diagnosis.cause == "leak"
    assert diagnosis.alternatives[0].cause == "gpu_exhausted"


def test_growth_without_steps_is_a_leak_only_if_something_is_seen_to_be_kept(tmp_path):
    recording = load(write_example(tmp_path))
    no_steps = replace(recording, steps=(), fit_seconds=None)
    assert profile_of(no_steps).leak is not None
    unnamed = profile_of(replace(no_steps, suspects=()))
    assert unnamed.leak is None
    assert unnamed.growths[0].kind == "unclear"


def test_the_example_recording_is_a_leak_that_names_its_list(tmp_path):
    profile = profile_of(load(write_example(tmp_path)))
    assert profile.leak is not None
    assert "losses (list)" in diagnosis_of(profile).summary


@given(
    st.lists(st.integers(0, 1 << 40), max_size=80),
    st.integers(1, 40),
    st.sampled_from([None, killed(), killed("unknown"), End(seconds=1.0, exit_code=1)]),
)
def test_no_recording_makes_it_raise(sizes, epoch_steps, end):
    profile = profile_of(run(sizes, epoch_steps=epoch_steps, end=end))
    assert diagnosis_of(profile).summary
