"""The line that says what is being done, on a real terminal."""

import os
import pty
import subprocess
import sys

CODE = """
import sys, time
from oomdoctor.cli import progress
from oomdoctor.cli.output import tell
progress.PATIENCE_SECONDS = 0.05
progress.TICK_SECONDS = 0.05
with progress.Progress("Reading\\x1b[2J") as line:
    time.sleep(0.4)
    tell("a sentence")
    line.update("Tracing " + "x" * 500)
    time.sleep(0.4)
print("the report")
"""


def run_on_a_terminal(code, **environ):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "60", **environ},
    )
    os.close(follower)
    said = b""
    try:
        while piece := os.read(leader, 65536):
            said += piece
    except OSError:  # the other side has closed
        pass
    os.close(leader)
    assert process.wait() == 0
    return said.decode()


def shown(said):
    """Return the lines that stay on the terminal, and all that stood there in between."""
    lines, drawn = [], []
    for line in said.replace("\r\n", "\n").split("\n"):
        states = line.split("\r\x1b[K")
        drawn += states
        lines.append(states[-1])
    return lines, drawn


def test_it_is_drawn_made_room_for_and_erased():
    lines, drawn = shown(run_on_a_terminal(CODE))
    assert lines == ["a sentence", "the report", ""]
    assert "0:00 Reading\\x1b[2J" in drawn
    assert any(line.startswith("0:00 Tracing xxx") for line in drawn)
    assert max(map(len, drawn)) < 60


def test_it_is_not_drawn_where_nobody_watches_or_before_a_while():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("the report\n", "a sentence\n")
    assert run_on_a_terminal(CODE, TERM="dumb") == "a sentence\r\nthe report\r\n"
    patient = CODE.replace("progress.PATIENCE_SECONDS = 0.05", "progress.PATIENCE_SECONDS = 600")
    assert run_on_a_terminal(patient) == "a sentence\r\nthe report\r\n"


def test_it_is_erased_when_the_work_fails():
    code = CODE.replace('tell("a sentence")', "raise SystemExit(0)")
    lines, drawn = shown(run_on_a_terminal(code))
    assert lines == [""]
    assert len(drawn) > 2
