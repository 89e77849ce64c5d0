"""Time and memory against the size of hostile rules, configurations and baselines.

Each case is read at n, 2n, 4n and 8n bytes, in a process of its own, up to the limit that its
reader has (64 KiB for a rule, 256 KiB for a configuration). The growth is the exponent of time
against size: 1 where it is linear, less where the input is refused early. Imports do not count.

    python tests/benchmarks/hostile_rules.py
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KIB = 1024
RULE = """\
id = "TEAM001"
name = "too-many-samples"
family = "input"
severity = "error"
since = "0.1.0"
summary = "Too many samples."
when = "data.samples > 0"
message = "Has {data.samples}."
resource = "ram"
remedy = "subset"
fix_title = "Take fewer"
why = "Because."
example = "x = 1"
speed = "none"
effort = "one line"
accuracy = "none"
whole_dataset = true
limits = "none"
does_not_fix = "nothing"
references = []
"""
CODE = 'use_instead = "x = {data.samples}"\n'
CASE = '[[cases]]\noutcome = "fired"\nfacts.data.samples = 3\n'
VARIANT = '[[variants]]\nwhen = "data.samples > 9"\nuse_instead = "x"\n'


def repeated(unit: str, size: int) -> str:
    """Return a text of about this size."""
    return unit * max(1, size // len(unit))


RULES = {
    "one key of many parts": lambda n: repeated("a.", n) + "a = 1",
    "many keys of 32 parts": lambda n: "".join(
        "a." * 31 + f"k{number} = 1\n" for number in range(n // 72)
    ),
    "many headers of 32 parts": lambda n: "".join(
        f"[k{number}" + ".a" * 31 + "]\n" for number in range(n // 72)
    ),
    "brackets": lambda n: "x = " + "[" * n,
    "digits": lambda n: "x = " + "9" * n,
    "unclosed quotes": lambda n: repeated("x = '\n", n),
    "empty lines, unknown key": lambda n: RULE + CODE + "\n" * n + "unknwon = 1",
    "guards on one line": lambda n: RULE + 'use_instead = "' + repeated("{?data.root}", n) + 'x"\n',
    "placeholders": lambda n: RULE + 'use_instead = "' + repeated("{data.samples} ", n) + '"\n',
    "open braces": lambda n: RULE + 'use_instead = "' + repeated("{data", n) + '"\n',
    "backticks": lambda n: RULE + f"use_instead = '''{'`' * n}'''\n" + CASE,
    "cases": lambda n: RULE + CODE + repeated(CASE, n),
    "variants and cases": lambda n: (
        RULE + CODE + repeated(VARIANT, n // 2) + repeated(CASE, n // 2)
    ),
    "prose": lambda n: RULE + CODE.replace("x =", f"# {'word. ' * (n // 6)}\\nx ="),
}
CONFIGS = {
    "one key of many parts": RULES["one key of many parts"],
    "many keys of 32 parts": RULES["many keys of 32 parts"],
    "many headers of 32 parts": RULES["many headers of 32 parts"],
    "unknown keys": lambda n: "".join(f"k{number} = 1\n" for number in range(n // 12)),
    "one long key": lambda n: "k" * n + " = 1",
    "datasets": lambda n: repeated("[[datasets]]\npath = 'data'\n", n),
    "words": lambda n: "select = [" + repeated("'OD101', ", n) + "]",
}
BASELINES = {
    "findings": lambda n: _baseline(
        findings=[{"fingerprint": f"{k:032}", "rule": "OD101"} for k in range(n // 70)]
    ),
    "layers": lambda n: _baseline(
        peaks=[
            {
                "subject": "m",
                "peak_bytes": 1,
                "threads": 1,
                "layers": {f"layer{k}": k for k in range(n // 18)},
            }
        ]
    ),
    "brackets": lambda n: "[" * n,
    "digits": lambda n: '{"tool": "oomdoctor", "version": ' + "9" * n + "}",
}


def _baseline(**parts: list[object]) -> str:
    return json.dumps({"tool": "oomdoctor", "version": 1, **parts})


def read_rule(folder: Path, text: str) -> None:
    """Read, validate and print a rule."""
    from oomdoctor.advise.cases import problems
    from oomdoctor.advise.load import read_rule
    from oomdoctor.advise.page import render_page

    path = folder / "too-many-samples.toml"
    path.write_text(text)
    rule = read_rule(path)
    problems(rule)
    render_page(rule)


def read_config(folder: Path, text: str) -> None:
    """Read a configuration and what it names."""
    from oomdoctor.cli.check import command
    from oomdoctor.cli.config import defaults_for, find_config
    from oomdoctor.cli.plan import read_plan

    (folder / "oomdoctor.toml").write_text(text)
    config = find_config(folder)
    assert config is not None
    defaults_for(command, config)
    read_plan(config, defaults={"batch_size": 32})


def read_baseline(folder: Path, text: str) -> None:
    """Read a baseline and record it again."""
    from oomdoctor.api.baseline import read_baseline, recorded

    path = folder / "b.json"
    path.write_text(text)
    recorded((), root=".", threads=1, before=read_baseline(str(path)))


READERS = {
    "rule": (read_rule, RULES, 7 * KIB),
    "configuration": (read_config, CONFIGS, 30 * KIB),
    "baseline": (read_baseline, BASELINES, 1024 * KIB),
}


def child(kind: str, name: str, size: int) -> None:
    """Print the seconds and the bytes that one input takes, after all was imported."""
    from oomdoctor.errors import OomDoctorError

    read, cases, _ = READERS[kind]
    text = cases[name](size)
    with tempfile.TemporaryDirectory() as folder:
        for warm_up in (cases[name](64), text):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.process_time()
            try:
                read(Path(folder), warm_up)
                end = "read"
            except OomDoctorError as error:
                end = str(error).rpartition("/")[2][:60]
            seconds = time.process_time() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": seconds, "grown": grown * KIB, "end": end}))


def measured(kind: str, name: str, size: int) -> dict[str, float | str]:
    """Return what one input takes in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", kind, name, str(size)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    answer: dict[str, float | str] = json.loads(done.stdout)
    return answer


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", nargs=3)
    arguments = parser.parse_args()
    if arguments.child:
        kind, name, size = arguments.child
        child(kind, name, int(size))
        return
    print("| reader | case | KiB | ms at n, 2n, 4n, 8n | growth | MiB at 8n | what it says |")
    print("|---|---|---|---|---|---|---|")
    for kind, (_, cases, smallest) in READERS.items():
        for name in cases:
            sizes = [smallest * factor for factor in (1, 2, 4, 8)]
            told = [measured(kind, name, size) for size in sizes]
            spent = [max(float(each["seconds"]), 1e-4) for each in told]
            growth = math.log(spent[-1] / spent[0]) / math.log(8)
            times = ", ".join(f"{1000 * seconds:.1f}" for seconds in spent)
            grown = float(told[-1]["grown"]) / KIB**2
            print(
                f"| {kind} | {name} | {sizes[-1] // KIB} | {times} | {growth:.2f} | {grown:.1f} "
                f"| {told[-1]['end']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
