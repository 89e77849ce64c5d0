"""`%load_ext oomdoctor` in IPython itself."""

import os
import subprocess
import sys

import pytest

import oomdoctor
from oomdoctor import notebook

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")

NUMPY = (
    "Unable to allocate 4.09 GiB for an array with shape (16283, 150, 150, 3) and data type float32"
)
FAILS = f"raise MemoryError({NUMPY!r})"


@pytest.fixture
def shell(tmp_path, monkeypatch):
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    before = sys.modules["__main__"]
    shell = interactiveshell.InteractiveShell(config=config)
    yield shell
    shell.restore_sys_module_state()
    sys.modules["__main__"] = before


@pytest.fixture
def shown(shell):
    shown = []
    notebook.load(shell, shown.append)
    return shown


def test_a_watched_cell_shows_the_diagnosis_as_html(shell, shown):
    shell.run_cell(f"%%oomwatch 32\n{FAILS}")
    assert [report.facts.diagnosis.cause for report in shown] == ["host_array_too_large"]
    assert "<strong>" in shown[0]._repr_html_()


def test_a_watched_cell_that_fails_has_failed_and_is_told_once(shell, shown, capsys):
    result = shell.run_cell(f"%%oomwatch\ndef load():\n    {FAILS}\n\nload()")
    assert isinstance(result.error_in_exec, MemoryError)
    printed = capsys.readouterr().out
    assert printed.count(f"MemoryError: {NUMPY}") == 1
    assert "in load()" in printed
    assert "notebook.py" not in printed


def test_a_cell_that_is_well_runs_as_it_would_without(shell, shown, capsys):
    assert shell.run_cell("%%oomwatch\nx = 3\nx + 1").success
    assert shell.user_ns["x"] == 3
    assert "4" in capsys.readouterr().out
    assert shown == []


def test_other_errors_are_raised_on_without_a_diagnosis(shell, shown):
    assert isinstance(shell.run_cell("%%oomwatch\n1 / 0").error_in_exec, ZeroDivisionError)
    assert isinstance(shell.run_cell("%%oomwatch\nx = = 1").error_in_exec, SyntaxError)
    assert shown == []


def test_tracebacks_are_back_after_a_watched_cell(shell, shown, capsys):
    shell.run_cell(f"%%oomwatch\n{FAILS}")
    capsys.readouterr()
    shell.run_cell("1 / 0")
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert len(shown) == 1


def test_watching_all_cells_is_switched_on_and_off(shell, shown):
    shell.run_cell("%oomwatch on")
    shell.run_cell(FAILS)
    shell.run_cell(f"%%oomwatch\n{FAILS}")
    assert len(shown) == 2
    shell.run_cell("%oomwatch off")
    shell.run_cell(FAILS)
    assert len(shown) == 2


@pytest.mark.parametrize("line", ["%%oomwatch many", "%%oomwatch 3 4", "%%oomwatch 0"])
def test_a_bad_batch_size_is_told_in_one_line(shell, shown, line, capsys):
    assert not shell.run_cell(f"{line}\nx = 1").success
    told = capsys.readouterr()
    assert "is not a batch size: write %%oomwatch 32." in told.err
    assert "Traceback" not in told.out + told.err
    assert "x" not in shell.user_ns


def test_a_word_that_is_neither_on_nor_off_is_told(shell, shown, capsys):
    assert not shell.run_cell("%oomwatch maybe").success
    assert "neither on nor off" in capsys.readouterr().err


def test_the_extension_comes_and_goes_by_its_name(shell, capsys):
    assert shell.run_cell("%load_ext oomdoctor\n%oomwatch on\n%reload_ext oomdoctor").success
    shell.run_cell(FAILS)
    assert "✗ Cause" not in capsys.readouterr().out, "reloaded: no longer on"
    shell.run_cell(f"%%oomwatch\n{FAILS}")
    assert capsys.readouterr().out.count("✗ Cause") == 1
    shell.run_cell("%oomwatch on\n%unload_ext oomdoctor")
    shell.run_cell(FAILS)
    assert "✗ Cause" not in capsys.readouterr().out
    assert not shell.run_cell("%oomwatch on").success


def test_the_cell_is_named_where_the_error_comes_from_it(shell, shown):
    shell.run_cell(f"%%oomwatch\nx = 1\n{FAILS}")
    assert shown[0].facts.diagnosis.source_line == "the cell, line 2"


def test_ipython_as_a_command_shows_the_diagnosis_and_fails(tmp_path):
    program = f"%load_ext oomdoctor\n%oomwatch on\n{FAILS}"
    run = subprocess.run(
        [sys.executable, "-m", "IPython", "--colors=nocolor", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )
    assert run.returncode == 1
    before, _, after = run.stdout.partition(f"MemoryError: {NUMPY}\n")
    assert "Traceback" in before
    assert "✗ Cause" in after


def test_the_door_of_the_extension_is_in_the_package():
    assert callable(oomdoctor.load_ipython_extension)
    assert callable(oomdoctor.unload_ipython_extension)
