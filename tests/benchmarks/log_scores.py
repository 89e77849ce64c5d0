"""How well `oomdoctor diagnose` reads public logs: `python tests/benchmarks/log_scores.py FOLDER`.

`log_labels.csv` holds the address of each log and what a careful reader concludes from it. The logs
themselves are other people's text and stay where they are: save the program output of an address as
`FOLDER/NAME.log`. Logs that are not in the folder are left out of the score.

Sets `a` to `c` were collected and labelled before the code was read, and drawn by a hash of the
address: `a` was looked at while the code was changed, `b` and `c` only after it. `d` was collected
when that was done, and `e` when the code had learned from `d`. What each set scored at first sight
(cause, remedy among the first three, fields), before anything was changed for it:

    a    28/31   25/31   27/35    before the change
    b    22/22   22/22   33/33
    c    40/40   40/40   37/37
    d    26/28   25/28   21/28
    e    16/16   15/16   28/28

There was no false alarm. The same person found the logs and wrote the code, who had read `b` and
`c` while labelling them: `d` and `e` are the stricter test.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LABELS = Path(__file__).with_name("log_labels.csv")
FIELDS = ("requested_bytes", "shape", "limit_bytes", "in_use_bytes")
NO_ALARM = {"not_memory", "no_failure"}
TOLERANCE = 0.01


def diagnosed(log: Path) -> Any:
    """What the command prints for one log, as JSON."""
    command = [sys.executable, "-m", "oomdoctor", "diagnose", str(log), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def same(expected: str, found: object) -> bool:
    """Whether a field agrees: shapes exactly, sizes within one per cent."""
    if isinstance(found, list):
        return expected == "x".join(map(str, found))
    return isinstance(found, int) and abs(found - int(expected)) <= TOLERANCE * int(expected)


def wrong(label: dict[str, str], report: Any) -> Iterator[str]:
    """What disagrees with the label, by its kind."""
    diagnosis = report["diagnosis"]
    causes, remedies = set(label["causes"].split()), set(label["remedies"].split())
    fired = [f["remedy"] for f in report["findings"] if f["outcome"] == "fired"][:3]
    if diagnosis["cause"] not in causes:
        yield f"cause: {diagnosis['cause']}"
        if label["causes"] == "not_memory no_failure":
            yield f"false alarm: {diagnosis['cause']}"
    if not (remedies & set(fired) or (remedies == {"none"} and not set(fired) - {"none"})):
        yield f"remedy: {' '.join(fired) or 'nothing'}"
    for field in FIELDS:
        if label[field] and not same(label[field], diagnosis[field]):
            yield f"field: {field} is {diagnosis[field]}, not {label[field]}"


def main() -> None:
    """Print what is wrong, log by log, then the totals of each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", dest="only", choices=tuple("abcde"))
    options = parser.parse_args()
    with LABELS.open(newline="") as file:
        labels = [
            row
            for row in csv.DictReader(file)
            if (options.folder / f"{row['name']}.log").is_file()
            and options.only in (None, row["set"])
        ]
    counts: dict[str, dict[str, int]] = {}
    for label in labels:
        found = list(wrong(label, diagnosed(options.folder / f"{label['name']}.log")))
        for line in found:
            print(f"{label['set']} {label['name']:14} {line}")
        tally = counts.setdefault(label["set"], dict.fromkeys(("logs", "fields"), 0))
        tally["logs"] += 1
        tally["fields"] += sum(bool(label[field]) for field in FIELDS)
        for kind in ("cause", "remedy", "field", "false alarm"):
            tally[kind] = tally.get(kind, 0) + sum(line.startswith(f"{kind}:") for line in found)
    for name, tally in sorted(counts.items()):
        logs, fields = tally["logs"], tally["fields"]
        print(
            f"set {name}: cause {logs - tally['cause']}/{logs}, "
            f"remedy in first three {logs - tally['remedy']}/{logs}, "
            f"fields {fields - tally['field']}/{fields}, false alarms {tally['false alarm']}"
        )


if __name__ == "__main__":
    main()
