"""The program must not notice that it is recorded."""

import os
import pty
import subprocess
import sys

import pytest

SHOW = """
import os, sys
print(__name__, sys.argv, sys.path[0], __file__)
print("PYTHONPATH" in os.environ and os.environ["PYTHONPATH"])
print([name for name in os.environ if name.startswith("OOMDOCTOR_PROFILE")])
print(any("hook" in place and "oomdoctor" in place for place in sys.path))
print(sys.excepthook is sys.__excepthook__, sys.stdin.read())
"""


@pytest.fixture
def both(profile, environ, tmp_path):
    """A function that runs the same with and without the profiler."""

    def run(*arguments, **how):
        plain = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=environ,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
            **how,
        )
        return plain, profile(*arguments, **how)

    return run


def test_a_script_sees_what_it_would_see_without_us(both, tmp_path):
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    plain, recorded = both(script, "--epochs", "3", "--ram", "-v", input="typed")
    assert recorded.out == plain.stdout
    assert "'--ram', '-v'" in recorded.out
    assert recorded.code == 0


def test_a_module_and_code_run_as_python_runs_them(both, tmp_path):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__main__.py").write_text(SHOW)
    plain, recorded = both("-m", "mine", "--lr", "1")
    assert recorded.out == plain.stdout
    assert recorded.out.startswith("__main__")


def test_code_on_the_command_line_runs(both):
    plain, recorded = both("-c", "import sys; print(sys.argv); sys.exit(7)", "a", "-m")
    assert recorded.out == plain.stdout == "['-c', 'a', '-m']\n"
    assert recorded.code == plain.returncode == 7


def test_a_traceback_is_the_one_python_prints(both, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("def inner():\n    raise ValueError('bad')\n\n\ninner()\n")
    plain, recorded = both(script)
    assert recorded.err.startswith(plain.stderr)
    assert recorded.code == plain.returncode == 1
    assert recorded.report["diagnosis"]["cause"] == "not_memory"


def test_a_memory_error_is_told_with_what_was_asked_for(profile, tmp_path):
    script = tmp_path / "numpy_fails.py"
    script.write_text("import numpy\nnumpy.ones((10**7, 10**7))\n")
    run = profile(script)
    assert run.code == 1
    assert run.report["diagnosis"]["cause"] == "host_array_too_large"
    assert run.report["diagnosis"]["requested_bytes"] == 8 * 10**14


def test_another_sitecustomize_still_runs(profile, tmp_path, environ, monkeypatch):
    place = tmp_path / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text("import builtins\nbuiltins.was_customised = True\n")
    environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], str(place)])
    run = profile("-c", "print(was_customised, __import__('sitecustomize').__file__)")
    assert run.out == f"True {place / 'sitecustomize.py'}\n"


def test_processes_that_the_program_forks_do_not_write_into_its_recording(profile, tmp_path):
    script = tmp_path / "forks.py"
    script.write_text(
        "import os\nif os.fork() == 0:\n    raise MemoryError('in the child')\nos.wait()\n"
    )
    run = profile(script)
    assert run.code == 0
    assert run.report["diagnosis"]["cause"] == "no_failure"


def test_the_program_keeps_its_terminal(environ, tmp_path):
    leader, follower = pty.openpty()
    code = "import sys; print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty())"
    command = [sys.executable, "-m", "oomdoctor", "profile", "-o", str(tmp_path / "r"), "-c", code]
    with subprocess.Popen(
        command, env=environ, stdin=follower, stdout=follower, stderr=follower
    ) as process:
        process.wait(60)
    os.close(follower)
    assert b"True True True" in os.read(leader, 1000)
    os.close(leader)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give a script to run"),
        (["missing.py"], "missing.py does not exist"),
        (["-m"], "-m needs a module"),
        (["--from", "nowhere"], "nowhere is not a folder"),
        (["--timeline", "x.txt", "-c", "0"], "must end in .csv or .parquet"),
        (["--ram", "much", "-c", "0"], "is not a size"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(environ, tmp_path, arguments, said):
    done = subprocess.run(
        [sys.executable, "-m", "oomdoctor", "profile", *arguments],
        env=environ,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_timeline_goes_to_csv_and_parquet(profile, tmp_path, environ):
    import pandas as pd

    run = profile("--timeline", tmp_path / "t.csv", "-c", "import time; time.sleep(0.5)")
    assert run.code == 0
    table = pd.read_csv(tmp_path / "t.csv")
    assert table["rss_bytes"].max() > 1_000_000
    assert table["seconds"].is_monotonic_increasing
    again = [sys.executable, "-m", "oomdoctor", "profile", "--from", str(run.folder)]
    parquet = tmp_path / "t.parquet"
    subprocess.run(
        [*again, "--timeline", str(parquet)], env=environ, check=True, capture_output=True
    )
    assert len(pd.read_parquet(parquet)) == len(table)
