"""How often the checks of scripts speak up where there is nothing to train.

Runs them over installed packages: pandas, which does not train, Keras itself, and what else is
named. Prints each finding, to be read by a person, and the lines per finding. Rules that need
facts beyond the code (a shared GPU) do not fire here.

    python tests/benchmarks/script_precision.py [PACKAGE...]
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tabulate import tabulate

import oomdoctor
from oomdoctor.findings import Outcome

PACKAGES = ("pandas", "keras")


def main() -> None:
    """Print every finding, then a row for each package."""
    rows = []
    for name in sys.argv[1:] or PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise SystemExit(f"{name} is not installed.")
        root = Path(spec.origin).parent
        report = oomdoctor.check([str(path) for path in sorted(root.rglob("*.py"))], ram="16GiB")
        fired = [finding for finding in report.findings if finding.outcome is Outcome.FIRED]
        for finding in fired:
            at = finding.location
            place = f"{Path(at.file).relative_to(root.parent)}:{at.line}"
            print(f"{place} {finding.rule} {finding.severity.value}: {finding.message}")
        scripts = report.facts.scripts
        each = f"{scripts.lines // len(fired):,}" if fired else "no finding"
        rows.append((name, f"{scripts.files:,}", f"{scripts.lines:,}", len(fired), each))
    print(tabulate(rows, ("package", "files", "lines", "findings", "lines per finding")))


if __name__ == "__main__":
    main()
