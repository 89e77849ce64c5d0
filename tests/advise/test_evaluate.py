import pytest

from oomdoctor.advise.evaluate import advise, find_rule, judge
from oomdoctor.advise.load import load_rules, read_rule
from oomdoctor.errors import UsageError
from oomdoctor.facts import Facts, Gpu, Inventory, Machine, Memory
from oomdoctor.findings import Outcome, Severity

GIB = 2**30


def make(folder, number, tables="", **changes):
    """A rule that fires when there are files, with some fields changed."""
    fields = {
        "id": f"TEAM{number:03}",
        "name": f"test-rule-{number}",
        "family": "input",
        "severity": "warning",
        "since": "1.0.0",
        "summary": "There are files.",
        "when": "data.files > 0",
        "message": "{data.files} files.",
        "resource": "ram",
        "remedy": "subset",
        "fix_title": "Fewer",
        "why": "Why.",
        "example": "pass",
        "use_instead": "pass",
        "speed": "none",
        "effort": "one line",
        "accuracy": "none",
        "whole_dataset": True,
        "limits": "None.",
        "does_not_fix": "Much.",
        "references": [],
        **changes,
    }
    lines = []
    for key, value in fields.items():
        if isinstance(value, bool):
            lines.append(f"{key} = {str(value).lower()}")
        elif isinstance(value, list):
            lines.append(f"{key} = {value!r}")
        else:
            lines.append(f"{key} = '''{value}'''")
    path = folder / f"test-rule-{number}.toml"
    path.write_text("\n".join(lines) + "\n" + tables)
    return read_rule(path)


def dataset(files=3, root="data", stored_bytes=10):
    return Facts(inventory=Inventory(root=root, groups=(), files=files, stored_bytes=stored_bytes))


def ids(findings):
    return [finding.rule for finding in findings]


# --------------------------------------------------------------------------- outcomes


def test_every_rule_has_one_finding(tmp_path):
    rules = [
        make(tmp_path, 1),
        make(tmp_path, 2, when="data.files > 100"),
        make(tmp_path, 3, when="machine.gpu_free_bytes < GiB"),
        make(tmp_path, 4),
    ]

    findings = advise(dataset(), rules, ignore=["TEAM004"])

    assert [finding.outcome.value for finding in findings] == [
        "fired",
        "unknown",
        "passed",
        "skipped",
    ]
    assert ids(findings) == ["TEAM001", "TEAM003", "TEAM002", "TEAM004"]


def test_an_unknown_rule_says_which_fact_would_decide_and_how_to_get_it(tmp_path):
    rule = make(tmp_path, 1, when="machine.gpu_free_bytes < GiB and data.files > 0")

    (finding,) = advise(dataset(), [rule])

    assert finding.outcome is Outcome.UNKNOWN
    assert [fact.name for fact in finding.missing] == ["machine.gpu_free_bytes"]
    assert "--vram" in finding.missing[0].how_to_get
    assert finding.message == "There are files. Cannot tell without machine.gpu_free_bytes."
    assert finding.fix is None


def test_no_gpu_seen_is_unknown_and_never_passed(tmp_path):
    rule = make(tmp_path, 1, when="machine.gpu_count > 1")
    nothing_seen = Facts(machine=Machine(ram=Memory(total_bytes=GIB, available_bytes=GIB)))

    (finding,) = advise(nothing_seen, [rule])

    assert finding.outcome is Outcome.UNKNOWN


def test_nothing_known_fires_nothing():
    outcomes = {finding.outcome for finding in advise(Facts(), load_rules())}

    assert outcomes == {Outcome.UNKNOWN}


def test_a_fired_rule_carries_its_numbers_code_and_cost(tmp_path):
    rule = make(
        tmp_path,
        1,
        saves="data.stored_bytes // 3",
        fits="data.stored_bytes < 100",
        use_instead="\n\nfit({data.files})\n\n",
        effort="a rewrite",
    )

    (finding,) = advise(dataset(files=12345), [rule])

    assert finding.message == "12,345 files."
    assert finding.saves_bytes == 3
    assert finding.makes_it_fit is True
    assert finding.fix.code == "fit(12345)\n"
    assert finding.cost.effort == "a rewrite"
    assert finding.cost.whole_dataset is True


def test_what_cannot_be_told_about_a_remedy_is_none(tmp_path):
    rule = make(tmp_path, 1, saves="step.peak_bytes", fits="step.peak_bytes < GiB")

    (finding,) = advise(dataset(), [rule])

    assert finding.outcome is Outcome.FIRED
    assert finding.saves_bytes is None
    assert finding.makes_it_fit is None


def test_a_saving_is_never_negative(tmp_path):
    (finding,) = advise(dataset(), [make(tmp_path, 1, saves="data.files - 100")])

    assert finding.saves_bytes == 0


# --------------------------------------------------------------------------- ranking


def test_what_makes_it_fit_comes_first_even_if_milder(tmp_path):
    rules = [
        make(tmp_path, 1, severity="error", fits="data.files > 100"),
        make(tmp_path, 2, severity="error"),
        make(tmp_path, 3, severity="info", fits="data.files > 1"),
    ]

    assert ids(advise(dataset(), rules)) == ["TEAM003", "TEAM001", "TEAM002"]


def test_then_the_worst_comes_first(tmp_path):
    rules = [
        make(tmp_path, number, severity=severity)
        for number, severity in enumerate(["info", "error", "warning"])
    ]

    assert ids(advise(dataset(), rules)) == ["TEAM001", "TEAM002", "TEAM000"]


def test_then_what_suits_the_purpose(tmp_path):
    rules = [
        make(tmp_path, 1, saves="GiB"),
        make(tmp_path, 2, purposes=["production"]),
        make(tmp_path, 3, purposes=["prototype", "train"]),
    ]

    assert ids(advise(dataset(), rules)) == ["TEAM001", "TEAM002", "TEAM003"]
    assert ids(advise(dataset(), rules, purpose="production"))[0] == "TEAM002"
    assert ids(advise(dataset(), rules, purpose="train"))[0] == "TEAM003"


def test_then_bytes_saved_over_effort(tmp_path):
    rules = [
        make(tmp_path, 1, saves="300", effort="a rewrite"),  # 75 for each unit of effort
        make(tmp_path, 2, saves="200", effort="a few lines"),  # 100
        make(tmp_path, 3, saves="90", effort="one line"),  # 90
        make(tmp_path, 4),  # nobody can tell
    ]

    assert ids(advise(dataset(), rules)) == ["TEAM002", "TEAM003", "TEAM001", "TEAM004"]


def test_the_order_does_not_depend_on_the_order_of_the_rules(tmp_path):
    rules = [make(tmp_path, number) for number in range(5)]

    assert advise(dataset(), rules) == advise(dataset(), reversed(rules))


# --------------------------------------------------------------------------- choosing


def test_rules_are_chosen_by_the_beginning_of_an_id_or_by_name(tmp_path):
    rules = [make(tmp_path, number) for number in (101, 102, 201)]

    def fired(**how):
        found = advise(dataset(), rules, **how)
        return [finding.rule for finding in found if finding.outcome is Outcome.FIRED]

    assert fired(select=["TEAM1"]) == ["TEAM101", "TEAM102"]
    assert fired(ignore=["TEAM1"]) == ["TEAM201"]
    assert fired(select=["test-rule-201"]) == ["TEAM201"]
    assert fired(select=["TEAM1"], ignore=["test-rule-101"]) == ["TEAM102"]


@pytest.mark.parametrize(
    "how", [{"select": ["TEAM9"]}, {"ignore": ["test-rul-1"]}, {"select": [""]}]
)
def test_a_word_that_names_no_rule_is_an_error(tmp_path, how):
    with pytest.raises(UsageError, match=r"names no rule\."):
        advise(dataset(), [make(tmp_path, 1)], **how)


def test_the_nearest_rule_is_named():
    with pytest.raises(UsageError, match="Did you mean whole-dataset-in-memory"):
        find_rule("whole-dataset-in-memry", load_rules())
    assert find_rule("od101", load_rules()).name == "whole-dataset-in-memory"


def test_a_team_sets_its_own_severities(tmp_path):
    rules = [make(tmp_path, 1), make(tmp_path, 2)]

    findings = advise(dataset(), rules, severities={"test-rule-2": "error", "TEAM001": "info"})

    assert [finding.severity for finding in findings] == [Severity.ERROR, Severity.INFO]


def test_a_severity_or_purpose_that_does_not_exist_is_an_error(tmp_path):
    rules = [make(tmp_path, 1)]

    with pytest.raises(UsageError, match="'fatal' is not a severity for TEAM001"):
        advise(dataset(), rules, severities={"TEAM001": "fatal"})
    with pytest.raises(UsageError, match="'TEAM009' names no rule"):
        advise(dataset(), rules, severities={"TEAM009": "error"})
    with pytest.raises(UsageError, match="'prod' is not a purpose"):
        advise(dataset(), rules, purpose="prod")


# --------------------------------------------------------------------------- code


def test_the_first_variant_whose_condition_holds_gives_the_code(tmp_path):
    variants = {"data.files > 10": "many()", "data.files > 5": "some()", "data.samples > 0": "x()"}
    tables = "\n".join(
        f'[[variants]]\nwhen = "{when}"\nuse_instead = "{code}"' for when, code in variants.items()
    )
    rule = make(tmp_path, 1, tables, use_instead="main()")

    codes = [advise(dataset(files=files), [rule])[0].fix.code for files in (20, 7, 2)]

    assert codes == ["many()\n", "some()\n", "main()\n"]


def test_a_number_is_computed_for_the_code(tmp_path):
    tables = '[computed]\nhalf = "data.files / 2"\nnone = "step.peak_bytes"'
    rule = make(tmp_path, 1, tables, use_instead="take({computed.half}, {computed.none|4})")

    (finding,) = advise(dataset(files=7), [rule])

    assert finding.fix.code == "take(3, 4)\n"


@pytest.mark.parametrize(
    "root",
    [
        'a"); import os; os.abort(); ("',
        "two\nlines",
        "back\\slash\\",
        "\x1b[31mred\x1b[0m",
        'quote\' and "quote"',
        "\udcff not utf-8",
        "right\u202eto left",
        "smile 😀",
        "{data.samples}",
        "",
    ],
)
def test_a_path_cannot_break_out_of_code_or_message(tmp_path, root):
    rule = make(
        tmp_path, 1, message="In {data.root}.", use_instead="path = {data.root|x}  # {data.root|x}"
    )

    finding = judge(rule, {"data.files": 1, "data.root": root})

    scope = {}
    exec(finding.fix.code, {"__builtins__": {}}, scope)
    assert scope == {"path": root}
    assert finding.fix.code.count("\n") == 1
    assert finding.message.isprintable()


def test_the_tightest_gpu_decides(tmp_path):
    gpus = tuple(
        Gpu(index=n, name="T4", total_bytes=16 * GIB, free_bytes=free * GIB)
        for n, free in enumerate((12, 2))
    )
    machine = Machine(ram=Memory(total_bytes=None, available_bytes=None), gpus=gpus)
    rule = make(tmp_path, 1, when="machine.gpu_free_bytes < 4 * GiB")

    (finding,) = advise(Facts(machine=machine), [rule])

    assert finding.outcome is Outcome.FIRED


@pytest.mark.parametrize("word", ["OD101", "od101", "Od1", "Whole-Dataset-In-Memory"])
def test_one_word_selects_rules_in_capitals_or_not(word):
    rules = load_rules()

    def run(**words):
        findings = advise(Facts(), rules, **words)
        return {finding.rule for finding in findings if finding.outcome is not Outcome.SKIPPED}

    assert "OD101" in run(select=word)
    assert "OD201" not in run(select=word)
    assert "OD101" not in run(ignore=word)
    assert "OD201" in run(ignore=word)


def test_an_empty_word_names_no_rule():
    with pytest.raises(UsageError, match="names no rule"):
        advise(Facts(), load_rules(), select="")
