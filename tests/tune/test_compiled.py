"""The search by compiling, over cards whose memory is a function of the batch."""

import pytest

from oomdoctor.facts import Estimate
from oomdoctor.tune.compiled import MOST, NotCompiled, tune_by_compiling
from oomdoctor.tune.tuner import Failed, Wanted

BUDGET = 14_000


def compiled_with(peak, *, program="xla"):
    def compiled(size):
        high = int(1.03 * peak(size))
        return Estimate(
            batch_size=size,
            peak_bytes=peak(size),
            low_bytes=peak(size),
            high_bytes=high,
            parts=(("weights", 100), ("activations", peak(size) - 100)),
            program=program,
            device="Tesla T4",
            reason="why",
        )

    return compiled


def straight(size):
    return 300 + 80 * size


def bent(size):
    """Values are computed again from 80 % of the card on, and then hardly more is needed."""
    plain = 300 + 80 * size
    return plain if plain < 0.8 * 15_000 else 12_000 + 12 * (size - 146)


@pytest.mark.parametrize("peak", [straight, bent])
@pytest.mark.parametrize("guess", [None, 90, 170, 300])
def test_the_answer_was_compiled_and_fits_and_the_next_size_does_not(peak, guess):
    found = tune_by_compiling(
        compiled_with(peak),
        Wanted(margin=0, budget_bytes=BUDGET),
        compiler="XLA 0.9.0",
        guess=guess,
    )

    sizes = {trial.batch_size: trial.outcome for trial in found.trials}
    assert len(found.trials) == len(sizes) <= MOST
    assert sizes[found.batch_size] == "fits"
    assert found.peak_bytes == peak(found.batch_size)
    assert found.target_bytes <= BUDGET
    assert (found.device, found.compiled_by) == ("Tesla T4", "XLA 0.9.0")
    assert found.is_proved
    assert sizes[found.does_not_fit] == "oom"
    assert found.does_not_fit <= 1.07 * found.batch_size


def test_a_search_that_ends_early_claims_no_proof():
    found = tune_by_compiling(
        compiled_with(straight),
        Wanted(margin=0, budget_bytes=BUDGET),
        compiler="XLA",
        guess=20,
        deadline=0.0,
    )
    assert (found.is_proved, found.does_not_fit) == (False, None)


def test_what_limits_the_size_is_said():
    wanted = Wanted(margin=0, budget_bytes=BUDGET, maximum=64)
    found = tune_by_compiling(compiled_with(straight), wanted, compiler="XLA", guess=500)
    assert (found.batch_size, found.limited_by) == (64, "max_batch_size")
    late = tune_by_compiling(
        compiled_with(straight), Wanted(margin=0, budget_bytes=BUDGET), compiler="XLA", deadline=0.0
    )
    assert (len(late.trials), late.limited_by) == (1, "time")


def test_a_margin_stays_free():
    wanted = Wanted(budget_bytes=BUDGET, margin=0.2)
    found = tune_by_compiling(compiled_with(straight), wanted, compiler="XLA")
    assert found.target_bytes <= 0.8 * BUDGET


def test_where_nothing_fits_the_smallest_size_was_compiled():
    found = tune_by_compiling(
        compiled_with(lambda size: 20_000 + size),
        Wanted(margin=0, budget_bytes=BUDGET),
        compiler="XLA",
    )
    assert isinstance(found, Failed)
    assert min(trial.batch_size for trial in found.trials) == 1


def test_another_program_is_not_compiled():
    with pytest.raises(NotCompiled, match="why"):
        tune_by_compiling(
            compiled_with(straight, program="executor"),
            Wanted(margin=0, budget_bytes=BUDGET),
            compiler="XLA",
        )
