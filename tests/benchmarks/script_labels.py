"""How many mistakes of public training scripts are found, and how many warnings are worth it.

`script_labels.csv` names scripts and notebooks by repository, commit and path, with every memory
mistake that a person found in them before the checks were run: line, kind, and whether it is worth
a warning (`warn`), a hint (`hint`), or one as well as the other (`any`). A place marked `either` is
a matter of taste: it counts for nothing if it is missed, and for a hint if it is told; a warning
there is one too many. One marked `wrong` must not be told. A finding with no label is wrong.

The code itself is read from bare Git repositories below a folder, `owner+name/…`, and is not kept.

    python tests/benchmarks/script_labels.py FOLDER [1|2] [--all]
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

import oomdoctor
from oomdoctor.findings import Finding, Outcome

LABELS = Path(__file__).with_name("script_labels.csv")
RAM = "16GiB"
NEAR = 1
"""Lines that a finding may be away from its label: a statement may span several."""
KINDS = {
    "array-as-constant": ("constant",),
    "bytes-to-float64": ("float64", "copy"),
    "cache-in-ram": ("cache",),
    "cache-of-batches": ("cache",),
    "copy-of-dataset": ("copy", "float64"),
    "dataset-held-in-list": ("images-in-ram", "growth"),
    "dataset-read-in-getitem": ("images-in-ram",),
    "load-without-memory-map": ("load", "whole-file"),
    "model-built-in-loop": ("loop-model",),
    "floatx-of-64-bits": ("float64",),
    "large-array": ("images-in-ram", "replay"),
    "old-generator-method": ("generator-method",),
    "one-hot-labels": ("one-hot",),
    "pictures-read-into-list": ("images-in-ram",),
    "predict-in-loop": ("predict",),
    "replay-buffer-in-ram": ("replay",),
    "shuffle-of-everything": ("shuffle",),
    "shuffle-of-whole-batches": ("shuffle",),
    "shuffle-of-pictures": ("shuffle",),
    "slices-of-whole-array": ("slices",),
    "tensor-kept-in-loop": ("growth", "scalars"),
}
Label = dict[str, str]


def extract(mirror: Path, repository: str, commit: str, into: Path, wanted: set[str]) -> None:
    """Write files of one commit below a folder, with the modules they may import."""
    folder = mirror / repository.replace("/", "+") / "repo"
    git = ["git", "--git-dir", str(folder / ".git" if (folder / ".git").is_dir() else folder)]
    listed = subprocess.run([*git, "ls-tree", "-rz", commit], capture_output=True, check=True)
    objects = {}
    for entry in listed.stdout.decode(errors="replace").split("\0")[:-1]:
        about, _, name = entry.partition("\t")
        if name in wanted or name.endswith(".py"):
            objects[name] = about.split()[2]
    near = {name.partition("/")[0] if "/" in name else "" for name in wanted}
    for name, key in objects.items():
        if "" in near or "/" not in name or name.partition("/")[0] in near:
            shown = subprocess.run(
                [*git, "cat-file", "blob", key], capture_output=True, check=False
            )
            if shown.returncode == 0:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (into / name).write_bytes(shown.stdout)


def fired(path: Path) -> Iterator[Finding]:
    """Yield what the checks find in one file."""
    report = oomdoctor.check([str(path)], ram=RAM)
    for finding in report.findings:
        if finding.outcome is Outcome.FIRED and finding.location is not None:
            yield finding


def fits(label: Label, finding: Finding, check: str) -> bool:
    """Return whether a label is about what a finding tells."""
    at = finding.location
    assert at is not None
    lines = [int(line) for line in label["lines"].split("|")] if label["lines"] else []
    return (
        label["kind"] in KINDS.get(check, (check,))
        and (label["cell"] or "0") == str(at.cell or 0)
        and any(abs(line - at.line) <= NEAR for line in lines)
    )


def score(mirror: Path, number: str, show_all: bool) -> list[str]:
    """Print what was missed or wrong in one set, and return the row for it."""
    files: dict[tuple[str, str, str], list[Label]] = defaultdict(list)
    with LABELS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["set"] == number:
                files[row["repository"], row["commit"], row["path"]].append(row)
    counts: dict[str, int] = defaultdict(int)
    for repository in dict.fromkeys(key[:2] for key in files):
        with tempfile.TemporaryDirectory() as temporary:
            wanted = {key[2] for key in files if key[:2] == repository}
            extract(mirror, *repository, Path(temporary), wanted)
            for key, labels in files.items():
                if key[:2] == repository:
                    _score_file(Path(temporary) / key[2], key, labels, counts, show_all)
    warned, worth = counts["warnings"], counts["worth"]
    return [
        number,
        str(len(files)),
        f"{counts['lines']:,}",
        f"{worth} of {warned} ({_share(worth, warned)})",
        f"{counts['found']} of {counts['labels']} ({_share(counts['found'], counts['labels'])})",
        f"{counts['found warn']} of {counts['labels warn']}",
        f"{counts['hints']}",
        f"{counts['wrong']} ({20_000 * counts['wrong'] / max(1, counts['lines']):.1f})",
    ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _score_file(
    path: Path,
    key: tuple[str, str, str],
    labels: list[Label],
    counts: dict[str, int],
    show_all: bool,
) -> None:
    place = f"{key[0]} {key[2]}"
    findings = list(fired(path))
    scripts = oomdoctor.check([str(path)], ram=RAM).facts.scripts
    counts["lines"] += scripts.lines if scripts else 0
    found: set[int] = set()
    for finding in findings:
        check = finding.name
        about = [i for i, label in enumerate(labels) if fits(label, finding, check)]
        found.update(about)
        kinds = {labels[i]["severity"] for i in about}
        is_warning = finding.severity.value != "info"
        is_wrong = not kinds or kinds == {"wrong"}
        is_worth = bool(kinds & {"warn", "any"})
        counts["warnings" if is_warning else "hints"] += 1
        counts["worth"] += is_warning and is_worth
        counts["wrong"] += is_wrong
        at = finding.location
        if at and (show_all or is_wrong or (is_warning and not is_worth)):
            verdict = "wrong" if is_wrong else "right"
            if is_warning and not is_worth and not is_wrong:
                verdict = "not worth a warning"
            where = f"{at.cell or ''}:{at.line} {check} {finding.severity.value}"
            print(f"{verdict}: {place} {where}: {finding.message[:150]}")
    for i, label in enumerate(labels):
        if label["severity"] in ("warn", "hint", "any"):
            counts["labels"] += 1
            counts["found"] += i in found
            counts["labels warn"] += label["severity"] == "warn"
            counts["found warn"] += label["severity"] == "warn" and i in found
            if i not in found:
                at_lines = f"{label['cell']}:{label['lines']}"
                about = f"{label['kind']} {label['severity']} {label['note']}"
                print(f"missed: {place} {at_lines} {about}")


def main() -> None:
    """Print the misses and the wrong findings, then a row for each set."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if not words:
        raise SystemExit(__doc__)
    rows = [score(Path(words[0]), number, "--all" in sys.argv) for number in words[1:] or ("1",)]
    heads = (
        "set",
        "files",
        "lines",
        "warnings worth it",
        "mistakes found",
        "of them warn",
        "hints",
        "wrong (per 20,000 lines)",
    )
    print(tabulate(rows, heads))


if __name__ == "__main__":
    main()
