"""Every piece of code that a rule prescribes runs with the real TensorFlow, on the fixtures.

The code is rendered with the facts of the rule's own cases, with paths that exist; what else it can
count on is listed in `run_snippets.py`. All run in one process, as importing TensorFlow is slow.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.advise.cases import case_values
from oomdoctor.advise.evaluate import judge
from oomdoctor.advise.load import read_folder, rules_folder
from oomdoctor.findings import Outcome

HERE = Path(__file__).parent
DATASETS = HERE.parent.parent / "fixtures" / "datasets"

FILES = {
    "hdf5": "data.h5",
    "npz": "data.npz",
    "npy": "arrays/*.npy",
    "csv": "data.csv",
    "parquet": "data.parquet",
    "arrow": "data.arrow",
    "tfrecord": "data.tfrecord",
    "jsonl": "data.jsonl",
    "text": "lines.txt",
}
"""What the file of each format is called where the code runs."""

FOLDERS = {"audio": "audio", "text": "texts"}
"""What the folder of each kind is called there; all others are `data`."""


def with_real_paths(values):
    """The facts of a case, about data that is there; what a case does not know stays unknown."""
    folder = FOLDERS.get(values["data.kind"], "data")
    paths = {
        "data.root": folder,
        "data.train_path": folder if values["data.archive_path"] is None else "extracted/data",
        "data.validation_path": folder,
        "data.file_path": FILES.get(values["data.format"]),
        "data.archive_path": "data.zip",
        "data.array_path": "x_train.npy",
        "data.labels_path": "y_train.npy",
        "data.input_key": "x",
        "data.label_key": "y",
    }
    return {
        **values,
        **{name: real for name, real in paths.items() if values[name] is not None},
        "data.color_mode": None,  # the model there takes three channels
    }


def jobs_of(rule):
    """One piece of code for each that the rule's cases ask for."""
    seen = set()
    for number, case in enumerate(rule.file.cases, start=1):
        values = with_real_paths(case_values(case))
        finding = judge(rule, values)
        if finding.outcome is not Outcome.FIRED or finding.fix.code in seen:
            continue
        seen.add(finding.fix.code)
        name = f"{rule.id}-{rule.name}-case-{number}"
        yield {"name": name, "kind": values["data.kind"], "code": finding.fix.code}


RULES, _ = read_folder(rules_folder())
JOBS = [job for rule in RULES for job in jobs_of(rule)]


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """What went wrong, by the name of the job."""
    pytest.importorskip("tensorflow")
    folder = tmp_path_factory.mktemp("snippets")
    jobs, failures = folder / "jobs.json", folder / "failures.json"
    jobs.write_text(json.dumps(JOBS))
    subprocess.run(
        [sys.executable, HERE / "run_snippets.py", jobs, failures, DATASETS],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(failures.read_text())


def test_every_rule_prescribes_code():
    assert {job["name"].split("-")[0] for job in JOBS} == {rule.id for rule in RULES}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job["name"])
def test_the_code_is_complete(job):
    constants = [
        node.value for node in ast.walk(ast.parse(job["code"])) if isinstance(node, ast.Constant)
    ]

    assert Ellipsis not in constants  # stands where a fact is missing


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("name", [job["name"] for job in JOBS])
def test_the_code_runs(failures, name):
    assert failures.get(name) is None, failures[name]
