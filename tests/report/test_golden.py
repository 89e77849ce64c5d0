"""One report by hand, in every format, against files that a person has read.

`pytest --update-golden` writes them anew; each must also obey an invariant, so that a wrong one
cannot be blessed by accident.
"""

import json
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

import oomdoctor.report
from oomdoctor.facts import (
    Facts,
    Feeding,
    FileGroup,
    Footprint,
    Gpu,
    GpuProcess,
    GroupFootprint,
    Inventory,
    Machine,
    Memory,
    ShapeSpread,
    Skipped,
    Stage,
)
from oomdoctor.findings import (
    Cost,
    Finding,
    Fix,
    Location,
    MissingFact,
    Outcome,
    Report,
    Severity,
)
from oomdoctor.report import html, text
from oomdoctor.report import json as json_report
from oomdoctor.report.views import view_of

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"
SCHEMA = json.loads((Path(oomdoctor.report.__file__).parent / "schema.json").read_text())
GIB = 1024**3
EVIL = "<script>alert(1)</script>\x1b[2J"


def machine():
    return Machine(
        name=None,
        cpu_count=8,
        ram=Memory(
            total_bytes=32 * GIB,
            available_bytes=7 * GIB,
            limit_bytes=8 * GIB,
            limit_source="cgroup memory.max",
            swap_total_bytes=2 * GIB,
            swap_free_bytes=GIB,
        ),
        gpus=(
            Gpu(
                index=0,
                name="Tesla T4",
                total_bytes=15 * GIB,
                free_bytes=4 * GIB,
                reserved_bytes=GIB,
                used_bytes=11 * GIB,
                uuid="GPU-1",
                compute_capability=(7, 5),
                processes=(
                    GpuProcess(pid=7, name="python", used_bytes=10 * GIB),
                    GpuProcess(pid=8, name=None, used_bytes=None),
                ),
            ),
            Gpu(index=1, name="MIG 1g", total_bytes=None, free_bytes=None, is_mig=True),
        ),
        notes=("GPU 1 does not say who uses it.",),
    )


def group(name, split, samples, shape, *, spread=None, **more):
    elements = samples * shape[0] * shape[1] * shape[2]
    return FileGroup(
        name=name,
        format="image",
        kind="image",
        files=samples,
        samples=samples,
        stored_bytes=samples * 2000,
        elements=elements,
        dtype="uint8",
        split=split,
        classes=(("cat", samples // 2), ("dog", samples - samples // 2)),
        shapes=spread
        or ShapeSpread(smallest=shape, median=shape, largest=shape, most_common=shape, distinct=1),
        largest_sample=f"{name}/cat/1.png",
        **more,
    )


def held(group, shape, *, low=None, high=None):
    size = group.elements * 4
    return GroupFootprint(
        name=group.name,
        shape=shape,
        dtype="float32",
        decoded_bytes=size,
        low_bytes=low or size,
        high_bytes=high or size,
        native_bytes=size,
        largest_sample_bytes=shape and shape[0] * shape[1] * shape[2] * 4,
        is_whole=True,
        in_fit=True,
        split=group.split,
    )


def report():
    spread = ShapeSpread(
        smallest=(64, 64, 3),
        median=(256, 256, 3),
        largest=(1024, 768, 3),
        most_common=(256, 256, 3),
        distinct=40,
    )
    train = group("train", "train", 4000, (256, 256, 3), spread=spread, is_exact=False)
    other = group(f"odd/{EVIL}", None, 10, (128, 128, 3), notes=(f"a note {EVIL}",))
    groups = (held(train, None, low=5 * GIB // 2, high=7 * GIB // 2), held(other, (128, 128, 3)))
    total = sum(g.decoded_bytes for g in groups)
    feeding = Feeding(
        way="device",
        ram_bytes=9 * GIB,
        vram_bytes=4 * GIB,
        ram_verdict="does_not_fit",
        vram_verdict="does_not_fit",
        detail="the arrays",
    )
    stream = Feeding(
        way="stream",
        ram_bytes=GIB,
        vram_bytes=GIB // 8,
        ram_verdict="fits",
        vram_verdict="unknown",
        detail="batches",
    )
    footprint = Footprint(
        decoded_bytes=total,
        low_bytes=sum(g.low_bytes for g in groups),
        high_bytes=sum(g.high_bytes for g in groups),
        native_bytes=total,
        keras_loader_bytes=4010 * 786_432,
        sample_bytes=total // 4010,
        largest_sample_bytes=1024 * 768 * 12,
        batch_bytes=32 * 1024 * 768 * 12,
        batch_size=32,
        load="memory",
        groups=groups,
        feedings=(feeding, stream),
        chosen=feeding,
        recommended="stream",
        stages=(
            Stage(kind="shuffle", label="shuffle(1000)", elements=1000, element_bytes=786_432),
            Stage(kind="cache", label=f"cache({EVIL!r})", held_bytes=None),
        ),
    )
    inventory = Inventory(
        root="data",
        groups=(train, other),
        files=4013,
        stored_bytes=train.stored_bytes + other.stored_bytes,
        skipped=(Skipped(reason="empty file", files=3, examples=("a.png", f"b{EVIL}")),),
        is_exact=False,
    )
    cost = Cost(
        speed="about the same while reading keeps up with training, slower from a slow disk",
        effort="a few lines",
        accuracy="none",
        whole_dataset=True,
    )
    findings = (
        Finding(
            rule="OD101",
            name="whole-dataset-in-memory",
            outcome=Outcome.FIRED,
            severity=Severity.ERROR,
            message="Loading the data whole needs 9.00 GiB of RAM; 7.00 GiB is available.",
            remedy="stream_dataset",
            saves_bytes=8 * GIB,
            makes_it_fit=True,
            fix=Fix(title="Stream the files", code="model.fit(dataset)\n"),
            cost=cost,
        ),
        Finding(
            rule="OD103",
            name="subset-to-prototype",
            outcome=Outcome.FIRED,
            severity=Severity.INFO,
            message="Half of the samples would fit.",
            remedy="subset",
            fix=Fix(title="Try a part first", code="x = x[:1000]\n"),
            cost=cost,
            location=Location(file="train.py", line=3, column=1),
        ),
        Finding(
            rule="OD301",
            name="batch-larger-than-gpu",
            outcome=Outcome.UNKNOWN,
            severity=Severity.ERROR,
            message="",
            remedy="reduce_batch",
            missing=(MissingFact(name="step.peak_bytes", how_to_get="give a model"),),
        ),
    )
    return Report(
        command="check",
        verdict="does_not_fit",
        facts=Facts(machine=machine(), inventory=inventory, footprint=footprint),
        findings=findings,
        notes=("A note of the report.",),
    )


FORMATS = {
    "check.txt": lambda: text.render(view_of(report())),
    "check-verbose.txt": lambda: text.render(view_of(report(), verbose=True)),
    "check.html": lambda: html.render(view_of(report())),
    "check.json": lambda: json_report.render(report()),
    "probe.txt": lambda: text.render(view_of(machine())),
}


@pytest.mark.parametrize("name", FORMATS)
def test_output_is_what_a_person_has_read(name, request):
    made = FORMATS[name]()
    if request.config.getoption("--update-golden"):
        (GOLDEN / name).write_text(made, encoding="utf-8")
    assert made == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in FORMATS if name.endswith(".txt")])
def test_text_fits_80_columns_and_holds_no_control_characters(name):
    lines = FORMATS[name]().splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)


def test_text_begins_with_the_verdict_and_shows_at_most_three_remedies():
    made = FORMATS["check.txt"]()
    assert made.startswith("✗ It does not fit")
    assert made.count("\n4. ") == 0


def test_json_obeys_the_schema_and_its_parts_add_up():
    plain = json.loads(FORMATS["check.json"]())
    jsonschema.validate(plain, SCHEMA)
    assert plain == json.loads(json.dumps(json_report.plain(report())))
    groups = plain["inventory"]["groups"]
    assert sum(g["decoded_bytes"] for g in groups) == plain["footprint"]["decoded_bytes"]
    assert sum(g["stored_bytes"] for g in groups) == plain["inventory"]["stored_bytes"]
    assert sum(g["samples"] for g in groups) == plain["inventory"]["samples"]


def test_schema_itself_is_valid_and_refuses_unknown_keys():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    plain = json.loads(FORMATS["check.json"]())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**plain, "surprise": 1}, SCHEMA)


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []
        self.seen = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_is_well_formed_and_runs_nothing():
    tags = _Tags()
    tags.feed(FORMATS["check.html"]())
    assert tags.open == []
    assert "script" not in tags.seen


def test_values_show_themselves():
    import oomdoctor

    assert oomdoctor.check  # the first public name used says what draws
    assert repr(report()) == FORMATS["check.txt"]()
    assert report()._repr_html_() == FORMATS["check.html"]()
    assert report().to_dict() == json_report.plain(report())
    assert list(report().to_frame()["rule"]) == ["OD101", "OD103", "OD301"]
    assert list(machine().to_frame()["name"]) == ["Tesla T4", "MIG 1g"]
    assert list(report().facts.inventory.to_frame()["samples"]) == [4000, 10]
    assert "4,010 samples" in repr(report().facts.inventory)
    assert "in memory" in repr(report().facts.footprint)
