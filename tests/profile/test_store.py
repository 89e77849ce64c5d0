import random
import resource
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.errors import InputError
from oomdoctor.profile import records
from oomdoctor.profile.assemble import MOST_SAMPLES, thin
from oomdoctor.profile.store import INSIDE, OUTSIDE, Appender, load
from oomdoctor.recording import Sample

sys.path.insert(0, str(Path(__file__).parent))
from recordings import MIB, write_example


def test_a_recording_comes_back_as_it_was_written(tmp_path):
    recording = load(write_example(tmp_path))
    assert recording.command == ("python", "train.py")
    assert recording.step_count == 120
    assert recording.steps[-1].allocator_peak_bytes == 450 * MIB
    assert [phase.label for phase in recording.phases][-1] == "epoch 3"
    assert recording.end is not None
    assert recording.end.exit_code == 137
    assert recording.limit_of("host").limit_bytes == 2 << 30
    assert recording.breakdown.tensors[0].shape == (32, 150, 150, 64)
    assert recording.suspects[0].what == "losses (list)"


def test_a_sample_knows_its_phase_and_the_allocator_of_that_moment(tmp_path):
    recording = load(write_example(tmp_path))
    first, last = recording.samples[1], recording.samples[-1]
    assert first.phase == "import"
    assert first.allocator_bytes is None
    assert last.phase == "epoch 3"
    assert last.allocator_bytes == 300 * MIB


def test_a_recording_cut_anywhere_still_loads(tmp_path):
    whole = (write_example(tmp_path / "whole") / OUTSIDE).read_bytes()
    head = whole.index(b"\n") + 1
    cut = tmp_path / "cut"
    cut.mkdir()
    for at in random.Random(7).sample(range(head, len(whole)), 40):
        (cut / OUTSIDE).write_bytes(whole[:at])
        recording = load(cut)
        assert recording.end is None
        assert recording.sample_count == max(0, whole[:at].count(b"\n") - 1)
        assert any("cut off" in note for note in recording.notes)


def test_a_line_torn_by_a_full_disk_costs_that_line_alone(tmp_path):
    folder = write_example(tmp_path)
    lines = (folder / OUTSIDE).read_bytes().splitlines(keepends=True)
    lines[5] = lines[5][:10] + b"\n"
    (folder / OUTSIDE).write_bytes(b"".join(lines))
    recording = load(folder)
    assert recording.sample_count == len(lines) - 3
    assert any("1 lines" in note for note in recording.notes)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_make_loading_raise_anything_but_a_clear_error(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("any")
    first = records.encode(records.Run(version=1, command=["x"], started_at=1.0))
    (folder / OUTSIDE).write_bytes(first + b"\n".join(lines))
    (folder / INSIDE).write_bytes(b"\n".join(lines))
    load(folder)


@pytest.mark.parametrize(
    "line",
    [
        b'{"k":"s","t":-1,"rss":1}',
        b'{"k":"s","t":1e999,"rss":1}',
        b'{"k":"s","t":1,"rss":-5}',
        b'{"k":"s","t":1,"rss":99999999999999999999999}',
        b'{"k":"s","t":true,"rss":"4"}',
        b"[" * 100_000,
        b'{"k":"begin","t":1,"phase":"epoch","label":"' + b"x" * 2000 + b'"}',
    ],
)
def test_a_line_out_of_bounds_is_passed_over(line):
    assert records.decode(line) is None


def test_a_line_without_an_end_does_not_fill_memory(tmp_path):
    folder = write_example(tmp_path)
    with (folder / INSIDE).open("ab") as file:
        file.write(b"x" * 3_000_000)
    assert load(folder).step_count == 120


def test_a_folder_without_a_recording_is_told_in_one_sentence(tmp_path):
    with pytest.raises(InputError, match="no recording"):
        load(tmp_path)
    with pytest.raises(InputError, match="not a folder"):
        load(tmp_path / "missing")


def test_a_day_at_ten_hertz_is_thinned_and_its_spikes_stay():
    count = 864_000
    items = [Sample(seconds=i / 10, rss_bytes=1000 + i % 7) for i in range(0, count, 4)]
    items[100_001] = Sample(seconds=0, rss_bytes=10**9)
    items[3] = Sample(seconds=0, rss_bytes=1)
    kept = thin(items, MOST_SAMPLES)
    assert len(kept) <= MOST_SAMPLES
    assert max(sample.rss_bytes for sample in kept) == 10**9
    assert min(sample.rss_bytes for sample in kept) == 1
    assert (kept[0], kept[-1]) == (items[0], items[-1])


def test_a_long_recording_is_loaded_thin_and_counted_whole(tmp_path):
    folder = write_example(tmp_path, epochs=1)
    appender = Appender(folder / OUTSIDE)
    for number in range(2 * MOST_SAMPLES + 10):
        appender.write(records.S(t=100.0 + number, rss=number))
    appender.close()
    recording = load(folder)
    assert len(recording.samples) <= MOST_SAMPLES
    assert recording.sample_count > 2 * MOST_SAMPLES
    assert recording.samples[-1].seconds == 100.0 + 2 * MOST_SAMPLES + 9


def test_writing_to_a_full_disk_is_noted_and_never_raised(tmp_path):
    appender = Appender(tmp_path / OUTSIDE)
    # A limit on the size of files ends a write as a full disk does.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        appender.write(records.Note(text="lost"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert appender.failed
    appender.close()


def test_what_grew_before_the_first_step_is_no_suspect(tmp_path):
    folder = write_example(tmp_path)
    appender = Appender(folder / INSIDE)
    appender.write(records.Suspicion(kind="objects_kept", what="modules", count=9, step=0))
    appender.close()
    assert [suspect.what for suspect in load(folder).suspects] == ["losses (list)"]
