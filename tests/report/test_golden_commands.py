"""What each command prints, for inputs that come with the repository, as a person has read it.

`pytest --update-golden` writes the files anew. They are run from the repository's root, and
compared with a given machine, so that they are the same everywhere.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "fixtures" / "golden"

COMMANDS = {
    "check-images.txt": "check fixtures/datasets/shapes --ram 4GiB --vram 2GiB",
    "check-too-large.txt": "check fixtures/datasets/shapes --load memory "
    "--ram 1300MiB --vram 300MiB",
    "check-production.txt": "check fixtures/datasets/shapes --load memory --ram 1300MiB "
    "--vram 300MiB --purpose production",
    "check-code.txt": "check fixtures/scripts/sequence_naive.py --ram 4GiB --vram 2GiB",
    "check-machines.txt": "check fixtures/datasets/arrays --machine all",
    "diagnose-fragmented.txt": "diagnose fixtures/logs/tf_fragmented.log",
    "diagnose-killed.txt": "diagnose fixtures/logs/tf_killed.log",
    "probe-machine.txt": "probe --machine colab-t4",
    "rules-one.txt": "rules OD104",
    "help.txt": "--help",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_a_person_has_read(name, request):
    done = subprocess.run(
        [sys.executable, "-m", "oomdoctor", *COMMANDS[name].split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert "Traceback" not in done.stderr
    if request.config.getoption("--update-golden"):
        (GOLDEN / name).write_text(done.stdout, encoding="utf-8")
    assert done.stdout == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "rules-one.txt"])
def test_it_fits_80_columns(name):
    lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("check-")])
def test_no_report_contradicts_itself(name):
    told = (GOLDEN / name).read_text(encoding="utf-8")
    if told.startswith("✓ It fits: streamed"):
        assert re.search(r"streamed in batches .*recommended", told)
    if "production" in name:
        assert "subset" not in told
    assert "could not be decided" not in told
    interval = re.search(r"([\d.]+) GiB in memory \(([\d.]+) GiB to ([\d.]+) GiB\)", told)
    if interval:
        size, low, high = map(float, interval.groups())
        assert low <= size <= high
    costs = re.findall(r"^  (\d)\. ", told.partition("What each change costs")[2], re.M)
    remedies = re.findall(r"^(\d)\. ", told, re.M)
    if costs:
        assert costs == remedies[: len(costs)]
