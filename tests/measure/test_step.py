"""What a trial concludes from several steps."""

from oomdoctor.measure.spec import AllocationTrace, Trial
from oomdoctor.measure.trial import highest, worse
from oomdoctor.units import MIB


def traced(peak_mib, needed_mib):
    needed = None if needed_mib is None else needed_mib * MIB
    return AllocationTrace(
        peak_bytes=peak_mib * MIB,
        allocator_peak_bytes=peak_mib * MIB,
        start_bytes=0,
        requested_bytes=0,
        parts={},
        layers={},
        tensors=(),
        curve=(),
        events=0,
        needed_bytes=needed,
    )


def test_the_highest_peak_is_shown_and_the_interval_of_what_is_needed():
    trace = highest([traced(100, 110), traced(104, 105)], [90 * MIB])

    assert trace.peak_bytes == 104 * MIB
    assert (trace.needed_low_bytes, trace.needed_bytes) == (105 * MIB, 110 * MIB)


def test_a_higher_peak_that_was_not_traced_is_taken_to_fragment_as_much():
    trace = highest([traced(100, 110)], [200 * MIB, 50 * MIB])

    assert trace.needed_bytes == 220 * MIB


def test_without_a_known_layout_nothing_is_claimed():
    assert highest([traced(100, None)], [200 * MIB]).needed_bytes is None


def test_of_two_trials_the_one_that_failed_counts_or_the_higher_peak():
    one = Trial(8, "fits", peak_bytes=10, step_peaks=(9, 10), seconds=1.0, step_seconds=0.3)
    other = Trial(8, "fits", peak_bytes=12, step_peaks=(12,), seconds=2.0, step_seconds=0.2)
    failed = Trial(8, "oom", message="no room")

    assert worse(one, failed) is failed
    both = worse(one, other)
    assert (both.peak_bytes, both.step_peaks) == (12, (9, 10, 12))
    assert (both.seconds, both.step_seconds) == (3.0, 0.2)
