"""`explain_error`, `watch`, the hook and the notebook."""

import subprocess
import sys
import types

import pytest

import oomdoctor
from oomdoctor.errors import InputError, UsageError

NUMPY = (
    "Unable to allocate 4.09 GiB for an array with shape (16283, 150, 150, 3) and data type float32"
)


def test_an_exception_is_explained_with_this_machine():
    report = oomdoctor.explain_error(MemoryError(NUMPY))
    assert report.facts.diagnosis.cause == "host_array_too_large"
    assert report.facts.diagnosis.requested_bytes == 4396410000
    assert report.facts.machine is not None
    assert report.verdict == "does_not_fit"


def test_a_log_is_explained_without_this_machine(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(NUMPY)
    for given in (str(path), path, [path], NUMPY):
        report = oomdoctor.explain_error(given)
        assert report.facts.diagnosis.cause == "host_array_too_large"
        assert report.facts.machine is None


def test_a_cause_behind_another_exception_is_found():
    error = RuntimeError("loading failed")
    error.__cause__ = MemoryError(NUMPY)
    diagnosis = oomdoctor.explain_error(error).facts.diagnosis
    assert diagnosis.cause == "host_array_too_large"


def test_an_exception_that_cannot_say_itself_is_survived():
    class Silent(Exception):
        def __str__(self):
            raise ValueError("no")

    assert oomdoctor.explain_error(Silent()).facts.diagnosis.cause in ("not_memory", "no_failure")


def test_nonsense_is_a_usage_error():
    with pytest.raises(UsageError, match="Give an exception"):
        oomdoctor.explain_error(7)
    with pytest.raises(InputError, match="cannot be read"):
        oomdoctor.explain_error(["missing.log"])


def test_watch_attaches_the_diagnosis_and_raises_the_same_error():
    error = MemoryError(NUMPY)
    with pytest.raises(MemoryError) as caught, oomdoctor.watch():
        raise error
    assert caught.value is error
    assert error.oomdoctor.facts.diagnosis.cause == "host_array_too_large"
    assert "ran out" in error.__notes__[0]


def test_watch_leaves_other_errors_and_no_error_alone():
    with oomdoctor.watch():
        pass
    error = ValueError("no")
    with pytest.raises(ValueError, match="no"), oomdoctor.watch():
        raise error
    assert not hasattr(error, "oomdoctor")


def test_watch_tells_of_the_model():
    weight = types.SimpleNamespace(shape=(1000, 10), dtype="float32")
    model = types.SimpleNamespace(name="net", weights=[weight], trainable_weights=[weight])
    with pytest.raises(MemoryError) as caught, oomdoctor.watch(model=model, batch_size=8):
        raise MemoryError(NUMPY)
    workload = caught.value.oomdoctor.facts.workload
    assert (workload.weights_bytes, workload.batch_size) == (40_000, 8)


def test_an_error_without_room_for_attributes_is_raised_on():
    class Closed(MemoryError):
        __slots__ = ()

        def __setattr__(self, name, value):
            if name == "oomdoctor":
                raise AttributeError(name)
            super().__setattr__(name, value)

    with pytest.raises(Closed), oomdoctor.watch():
        raise Closed(NUMPY)


HOOKED = f"""
import oomdoctor
uninstall = oomdoctor.install_excepthook()
{{more}}
raise MemoryError({NUMPY!r})
"""


@pytest.mark.parametrize(("more", "is_told"), [("", True), ("uninstall()", False)])
def test_the_hook_prints_below_the_traceback(more, is_told):
    run = subprocess.run(
        [sys.executable, "-c", HOOKED.format(more=more)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith("Traceback")
    assert ("ran out" in run.stderr) is is_told
