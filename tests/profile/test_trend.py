"""Simulated programs: what grows for ever is a leak, what comes to rest is not."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor.profile.trend import trend_of

MIB = 1 << 20
GIB = 1 << 30

seeds = st.integers(0, 10**9)


def series(steps, seed, *, level=2 * GIB, noise=0.5 * MIB, **parts):
    """Sizes after each step: a level, noise, and parts by name, each a function of the step."""
    rng = random.Random(seed)
    return [
        (float(step), int(level + rng.gauss(0, noise) + sum(part(step) for part in parts.values())))
        for step in range(1, steps + 1)
    ]


def leak(per_step):
    return lambda step: per_step * step


def warm_up(size, fades):
    return lambda step: size * (1 - 2.718281828 ** (-step / fades))


def teeth(height, period, phase=0):
    return lambda step: height * ((step + phase) % period) / period


def jumps(places, sizes):
    return lambda step: sum(size for at, size in zip(places, sizes, strict=True) if step >= at)


def filling(until, size):
    return lambda step: size * min(step, until) / until


def is_leak(points):
    trend = trend_of(points)
    return trend is not None and trend.is_rising


@given(seeds, st.floats(1.0, 8.0), st.floats(0, 600), st.floats(1, 15))
def test_a_megabyte_a_step_on_two_gigabytes_is_found_within_200_steps(seed, per_step, start, fades):
    points = series(200, seed, grown=leak(per_step * MIB), start=warm_up(start * MIB, fades))
    assert is_leak(points)
    assert trend_of(points).slope == pytest.approx(per_step * MIB, rel=0.25)


@given(seeds, st.floats(5, 60), st.integers(4, 14))
def test_a_leak_below_the_teeth_of_garbage_collection_is_found(seed, height, period):
    points = series(200, seed, grown=leak(MIB), gc=teeth(height * MIB, period, seed % period))
    assert is_leak(points)


@given(seeds, st.floats(0, 1500), st.floats(1, 60), st.integers(60, 1000))
def test_warming_up_is_no_leak(seed, size, fades, steps):
    fades = min(fades, steps / 8)
    assert not is_leak(series(steps, seed, start=warm_up(size * MIB, fades)))


@given(seeds, st.lists(st.floats(16, 2048), min_size=1, max_size=3), st.integers(60, 1000))
def test_an_allocator_that_takes_regions_is_no_leak(seed, sizes, steps):
    rng = random.Random(seed)
    places = [rng.randrange(1, steps) for _ in sizes]
    assert not is_leak(series(steps, seed, regions=jumps(places, [s * MIB for s in sizes])))


@given(seeds, st.floats(10, 1000), st.integers(60, 1000), st.floats(0.01, 0.4))
def test_the_teeth_of_garbage_collection_are_no_leak(seed, height, steps, share):
    period = max(2, int(steps * share))
    assert not is_leak(series(steps, seed, gc=teeth(height * MIB, period, seed % period)))


@given(seeds, st.floats(10, 4000), st.integers(100, 1000), st.floats(0.1, 0.6))
def test_a_cache_that_fills_and_then_stays_is_no_leak(seed, size, steps, share):
    until = max(1, int(steps * share))
    assert not is_leak(series(steps, seed, cache=filling(until, size * MIB)))


@given(seeds, st.integers(30, 1000), st.floats(0.01, 20))
def test_noise_is_no_leak(seed, steps, noise):
    assert not is_leak(series(steps, seed, noise=noise * MIB))


@settings(max_examples=50)
@given(seeds, st.integers(100, 600), st.floats(0.05, 0.9))
def test_growth_that_slows_like_a_logarithm_is_no_leak(seed, steps, share):
    import math

    tau = max(1.0, steps * 0.02 * share)
    slowing = {"heap": lambda step: 100 * MIB * math.log1p(step / tau)}
    assert not is_leak(series(steps, seed, **slowing))


@given(seeds, st.integers(0, 28))
def test_too_few_steps_say_nothing(seed, steps):
    assert trend_of(series(steps, seed, grown=leak(MIB))) is None


def test_a_day_of_a_slow_leak_is_found():
    points = series(20_000, 1, noise=30 * MIB, grown=leak(0.02 * MIB))
    assert is_leak(points)
