"""What a person writes after `--input-size` and `--data`."""

import pytest
from click.testing import CliRunner

from oomdoctor.cli import oomdoctor as main
from oomdoctor.errors import UsageError
from oomdoctor.units import parse_input_size


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("224x224", (224, 224)),
        ("224X224×3", (224, 224, 3)),
        ("200", (200,)),
        (200, (200,)),
        ([224, 224, 3], (224, 224, 3)),
        (("200",), (200,)),
        (("ids=512", "image=224x224x3"), {"ids": (512,), "image": (224, 224, 3)}),
        ({"ids": 512, "image": "8x8"}, {"ids": (512,), "image": (8, 8)}),
        ("a=b=3", {"a=b": (3,)}),
    ],
)
def test_a_size_is_read_as_it_is_written(written, read):
    assert parse_input_size(written) == read


@pytest.mark.parametrize(
    "written",
    [
        *("", "x", "0", "-3", "3.5", "1x", "x=", "=3", "9" * 30, "1x" * 8 + "1"),
        *(None, True, 2.5, [], {}, ("1", "2"), ("a=1", "2"), ("a=1", "a=2"), [True], {"a": None}),
    ],
)
def test_what_is_no_size_is_one_sentence(written):
    with pytest.raises(UsageError) as error:
        parse_input_size(written)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", ["estimate", "tune"])
def test_both_commands_explain_the_same_options(command):
    shown = CliRunner().invoke(main, [command, "--help"]).output

    assert "--input-size [NAME=]SIZE" in shown
    assert "--data DATA" in shown


def test_an_image_size_is_shown_as_it_is_written():
    assert "HxW[xC]" in CliRunner().invoke(main, ["check", "--help"]).output


@pytest.mark.parametrize("command", ["estimate", "tune"])
def test_a_wrong_size_exits_with_two(command):
    done = CliRunner().invoke(main, [command, "model.keras", "--input-size", "8y8"])

    assert done.exit_code == 2
    assert "is not the size of an input" in done.output


def test_settings_of_a_project_cannot_name_data_because_reading_it_may_run_code(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "oomdoctor.toml").write_text('data = "evil:run"\n')
    done = CliRunner().invoke(main, ["estimate", "model.keras"])

    assert "data cannot be set in a configuration" in str(done.exception or done.output)


def test_settings_give_sizes_by_name(tmp_path):
    from oomdoctor.cli.config import read_config
    from oomdoctor.cli.plan import read_plan

    path = tmp_path / "oomdoctor.toml"
    path.write_text('[[models]]\nmodel = "a:b"\ninput-size = {ids = 200, image = "8x8"}\n')
    (plan,) = read_plan(read_config(path, is_trusted=True), defaults={"batch_size": 32})["models"]

    assert plan.how_trained["input_shape"] == {"ids": (200,), "image": (8, 8)}
    assert plan.subject(32) == "a:b, batch 32, ids=200 image=8x8"
