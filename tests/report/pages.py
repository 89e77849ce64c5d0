"""Recordings for the tests of the page, and the browser that shows it."""

from __future__ import annotations

import os
import random
import shutil

import pytest

from oomdoctor.facts import Facts
from oomdoctor.findings import Report
from oomdoctor.recording import End, Limit, Phase, Profile, Recording, Sample, Step

EVIL = "<script>alert(1)</script>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def report_with(recording):
    return Report(
        command="profile", verdict="unknown", facts=Facts(profile=Profile(recording=recording))
    )


def long_recording(count, hz=10.0):
    """A day at ten samples a second: a sawtooth, with lone peaks that one sample shows."""
    noise = random.Random(7)
    sizes = [2**30 + (index % 5000) * 2**14 + index * 7919 % 2**20 for index in range(count)]
    peaks = sorted(noise.sample(range(count), 60))
    for number, index in enumerate(peaks):
        sizes[index] = 3 * 2**30 + number
    samples = tuple(
        Sample(seconds=index / hz, rss_bytes=size, container_bytes=size + 7)
        for index, size in enumerate(sizes)
    )
    return Recording(
        command=("python", "train.py"),
        started_at=0.0,
        samples=samples,
        steps=tuple(
            Step(seconds=n * 2.0, step=n + 1, epoch=1, rss_bytes=2**30) for n in range(count // 20)
        ),
        phases=tuple(
            Phase(kind="epoch", label=f"epoch {n}", start_seconds=n * 10.0, end_seconds=n * 10 + 10)
            for n in range(int(count / hz / 10))
        ),
        limits=(Limit(what="host", limit_bytes=4 * 2**30, source="--ram"),),
        end=End(seconds=count / hz, exit_code=0),
        sample_count=count,
    ), [sizes[index] for index in peaks]


def launched(playwright):
    """Return the system's Chromium, or skip where there is none to be had."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}: apt-get install chromium")
    # Chromium refuses its sandbox to root, as which containers often run.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=found, args=arguments)
