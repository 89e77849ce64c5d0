import os
import re
import shutil

import pytest

from oomdoctor.advise import load
from oomdoctor.advise.load import MAX_FILE_BYTES, load_rules, read_folder, read_rule, rules_folder
from oomdoctor.advise.rule import FIELDS, RuleFile
from oomdoctor.errors import InputError, RuleError

GOOD = """\
id = "TEAM001"
name = "too-many-samples"
family = "input"
severity = "warning"
since = "1.0.0"
summary = "There are too many samples."
when = "data.samples > 10"
message = "There are {data.samples} samples."
resource = "ram"
remedy = "subset"
fix_title = "Take ten"
why = "Ten are enough."
example = "model.fit(x)"
use_instead = "model.fit(x[:{data.batch_size|10}])"
speed = "faster"
effort = "one line"
accuracy = "worse"
whole_dataset = false
limits = "Assumes little."
does_not_fix = "Anything else."
references = ["https://example.org/"]
"""

CASES = """
[[cases]]
outcome = "fired"
[cases.facts]
data = { samples = 11 }
"""


def write(folder, text, name="too-many-samples.toml"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def changed(key, line):
    """The good rule with one line replaced, and the number of that line."""
    lines = GOOD.splitlines()
    number = next(n for n, text in enumerate(lines) if text.startswith(f"{key} ="))
    lines[number] = line
    return "\n".join(lines) + "\n", number + 1


def test_a_good_file_is_read(tmp_path):
    rule = read_rule(write(tmp_path, GOOD + CASES))

    assert rule.id == "TEAM001"
    assert rule.when.facts == {"data.samples"}
    assert rule.file.cases[0].outcome == "fired"


def test_every_field_is_explained_and_nothing_else_is():
    assert set(FIELDS) == set(RuleFile.__struct_fields__)


@pytest.mark.parametrize(
    ("key", "line", "message"),
    [
        (
            "severity",
            'severty = "error"',
            r"'severty' is not a key of a rule\. Did you mean severity\?",
        ),
        ("severity", 'severity = "fatal"', "severity: invalid enum value 'fatal'"),
        ("severity", "severity = 3", "severity: expected `str`, got `int`"),
        ("whole_dataset", 'whole_dataset = "no"', "whole_dataset: expected `bool`, got `str`"),
        ("id", 'id = "101"', "id: '101' is not an id: write OD101"),
        (
            "name",
            'name = "other-name"',
            "name: it must be words joined by -, equal to the file name",
        ),
        (
            "remedy",
            'remedy = "subsets"',
            r"remedy: 'subsets' is not a remedy\. Did you mean subset\?",
        ),
        ("references", 'references = ["http://a"]', "references: 'http://a' is not an https"),
        (
            "when",
            'when = "data.sample > 1"',
            r"when: data\.sample is not a fact\. Did you mean data",
        ),
        ("when", "when = \"__import__('os')\"", "when: a call is not part of the language"),
        ("when", 'when = "True"', "when: it reads no fact"),
        ("when", 'when = "data.samples"', "when: it gives a number, and a flag is needed"),
        ("message", 'message = "{data.sampels}"', r"message: \{data\.sampels\} is not a fact"),
        ("message", 'message = "{0.__class__}"', "message: a lone {"),
        ("message", 'message = "{data.samples.__class__}"', "message: a lone {"),
        ("message", 'message = "{data.samples!r}"', "message: a lone {"),
        ("message", 'message = "50 }"', "message: a lone }"),
        (
            "use_instead",
            'use_instead = "fit({data.batch_size})"',
            r"use_instead: `when` does not read \{data\.batch_size\}.*fall back on",
        ),
        (
            "use_instead",
            "use_instead = 'open(\"{data.root|x}\")'",
            r"use_instead: leave out the quotes around \{data\.root\}",
        ),
        (
            "use_instead",
            'use_instead = "fit({data.batch_size|os})"',
            "use_instead: .*must be a number",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, key, line, message):
    text, number = changed(key, line)
    path = write(tmp_path, text)

    with pytest.raises(RuleError, match=rf"too-many-samples\.toml:{number}: {message}"):
        read_rule(path)


def test_a_missing_key_is_named(tmp_path):
    text, _ = changed("why", "")

    with pytest.raises(RuleError, match="it lacks `why`"):
        read_rule(write(tmp_path, text))


def test_a_mistake_in_a_case_is_named_with_its_line(tmp_path):
    text = GOOD + CASES + CASES.replace("outcome", "outcom")
    number = len((GOOD + CASES).splitlines()) + 3

    with pytest.raises(RuleError, match=rf":{number}: 'outcom' is not a key.*Did you mean outcome"):
        read_rule(write(tmp_path, text))


def test_a_mistake_in_a_computed_number_is_refused(tmp_path):
    with pytest.raises(RuleError, match=r"computed: data\.sample is not a fact"):
        read_rule(write(tmp_path, GOOD + '[computed]\nhalf = "data.sample // 2"\n'))
    with pytest.raises(RuleError, match="'__x' is not a plain lower-case name"):
        read_rule(write(tmp_path, GOOD + '[computed]\n__x = "data.samples // 2"\n'))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD.replace('severity = "warning"', "severity = warning"), ":4: not TOML"),
        (GOOD + 'id = "TEAM002"\n', "not TOML: Cannot overwrite a value"),
        (GOOD.encode() + b'\nx = "\xff"\n', ":23: it is not UTF-8"),
        (b"\x00" * 10, "not TOML"),
        (GOOD + "#" * MAX_FILE_BYTES, "larger than 64 KiB"),
        ("x = " + "[" * 30000, "nested too deep"),
        ("x = " + "{a=" * 20000, "not TOML|nested too deep"),
        ("x = " + "9" * 60000, "not TOML"),
        ("", "it lacks `id`"),
    ],
    ids=["value", "repeated", "latin", "nul", "large", "lists", "tables", "number", "empty"],
)
def test_a_file_that_is_no_rule_gives_one_sentence(tmp_path, content, message):
    with pytest.raises(RuleError, match=message):
        read_rule(write(tmp_path, content))


def test_a_hostile_rule_runs_nothing_when_it_is_loaded(tmp_path):
    marker = tmp_path / "marker"
    attack = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    for key in ("when", "message", "use_instead", "example", "why"):
        text, _ = changed(key, f'{key} = """{attack}"""')
        _, errors = read_folder(write(tmp_path / key, text).parent)
        assert len(errors) == (1 if key == "when" else 0)
    for extra in ("saves", "fits"):
        _, errors = read_folder(write(tmp_path / extra, f'{GOOD}{extra} = """{attack}"""\n').parent)
        assert len(errors) == 1

    assert not marker.exists()


# --------------------------------------------------------------------------- folders


def test_one_error_for_each_bad_file_and_the_good_ones_are_kept(tmp_path):
    write(tmp_path, GOOD)
    write(tmp_path, "nonsense", "a-b.toml")
    write(tmp_path, "id = 3", "c-d.toml")
    write(tmp_path, "not a rule", "notes.txt")

    rules, errors = read_folder(tmp_path)

    assert [rule.id for rule in rules] == ["TEAM001"]
    assert [re.search(r"(\S+)\.toml", str(error))[1][-3:] for error in errors] == ["a-b", "c-d"]


def test_the_family_must_equal_the_folder(tmp_path):
    write(tmp_path / "input", GOOD)
    assert len(read_folder(tmp_path)[0]) == 1

    shutil.move(tmp_path / "input", tmp_path / "device")
    _, errors = read_folder(tmp_path)
    assert "family: it must equal the folder, device." in str(errors[0])


def test_a_team_adds_rules_to_the_catalogue(tmp_path):
    write(tmp_path, GOOD)

    ids = [rule.id for rule in load_rules([tmp_path])]

    assert "TEAM001" in ids
    assert "OD101" in ids
    assert ids == sorted(ids)


def test_an_id_that_is_taken_is_refused(tmp_path):
    text, _ = changed("id", 'id = "OD101"')
    write(tmp_path, text)

    with pytest.raises(RuleError, match=r"OD101 is taken by .*whole-dataset-in-memory\.toml"):
        load_rules([tmp_path])


def test_the_first_error_is_raised_and_the_others_counted(tmp_path):
    for name in ("a-b.toml", "c-d.toml", "e-f.toml"):
        write(tmp_path, "nonsense", name)

    with pytest.raises(RuleError, match=r"a-b\.toml:1: not TOML.* \(2 more: oomdoctor rules --val"):
        load_rules([tmp_path])


def test_a_folder_that_is_not_there_gives_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"Cannot read the rules in .*: No such file or directory"):
        load_rules([tmp_path / "none"])


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "MAX_FILES", 3)
    for number in range(4):
        (tmp_path / f"{number}.toml").touch()

    with pytest.raises(InputError, match="4 rule files; 3 is the most"):
        read_folder(tmp_path)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    secret = write(tmp_path / "secret", GOOD)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "too-many-samples.toml").symlink_to(secret)
    (tmp_path / "rules" / "linked").symlink_to(secret.parent)

    rules, errors = read_folder(tmp_path / "rules")

    assert rules == []
    assert len(errors) == 1
    assert "a link that leads out of" in str(errors[0])


def test_a_link_inside_the_folder_is_followed(tmp_path):
    write(tmp_path / "input", GOOD)
    (tmp_path / "too-many-samples.toml").symlink_to(tmp_path / "input" / "too-many-samples.toml")

    rules, errors = read_folder(tmp_path)

    assert len(rules) == 2
    assert errors == []


def test_pipes_loops_folders_and_dangling_links_do_not_block(tmp_path):
    os.mkfifo(tmp_path / "a-pipe.toml")
    (tmp_path / "a-folder.toml").mkdir()
    (tmp_path / "a-loop.toml").symlink_to(tmp_path / "a-loop.toml")
    (tmp_path / "a-ghost.toml").symlink_to(tmp_path / "nothing")

    rules, errors = read_folder(tmp_path)

    assert rules == []
    assert len(errors) == 4


def test_a_name_with_control_characters_is_spelled_out(tmp_path):
    write(tmp_path, "nonsense", "a\x1b[2J-b.toml")

    _, (error,) = read_folder(tmp_path)

    assert "a\\x1b[2J-b.toml:1: not TOML" in str(error)
    assert str(error).isprintable()


def test_the_catalogue_lies_beside_the_package_or_in_it():
    assert rules_folder().name in ("rules", "_rules")
    assert any(rules_folder().glob("*/*.toml"))


def test_the_short_way_of_reading_still_names_the_file_of_a_bad_condition(tmp_path):
    text, number = changed("when", 'when = "data.sample > 1"')

    with pytest.raises(
        RuleError, match=rf"too-many-samples\.toml:{number}: when: data\.sample is not"
    ):
        read_rule(write(tmp_path, text), thorough=False)


@pytest.mark.parametrize(
    "why",
    [
        '"plain"',
        '"it\'s"',
        '"a \\"quoted\\" word"',
        '"""long\nand "quoted" and it\'s\n"""',
        '"""ends in \'"""',
        '"""tab\\there"""',
        '\'literal """ text\'',
        '"""holds \'\'\' three"""',
    ],
)
def test_the_short_way_of_reading_reads_every_kind_of_string(tmp_path, why):
    text, _ = changed("why", f"why = {why}")
    path = write(tmp_path, text)

    assert read_rule(path, thorough=False).file == read_rule(path).file
