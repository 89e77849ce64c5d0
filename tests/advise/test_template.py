import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.advise.grammar import ExpressionError
from oomdoctor.advise.template import parse_template, render_code, render_text, string_literal


def text(template, **values):
    known = {name.replace("__", ".", 1): value for name, value in values.items()}
    return render_text(parse_template(template, {}), known)


def code(template, **values):
    known = {name.replace("__", ".", 1): value for name, value in values.items()}
    return render_code(parse_template(template, {}, is_code=True), known)


@pytest.mark.parametrize(
    ("template", "value", "read"),
    [
        ("{data.decoded_bytes}", 4396410000, "4.09 GiB"),
        ("{data.samples}", 16283, "16,283"),
        ("{data.expansion}", 1499.6, "1,500"),
        ("{data.expansion}", 1.52, "1.5"),
        ("{data.is_ragged}", True, "yes"),
        ("{data.is_ragged}", False, "no"),
        ("{data.dtype}", "uint8", "uint8"),
        ("{versions.keras}", 30401, "3.4.1"),
        ("{data.samples}", 0, "0"),
        ("{data.samples}", None, "unknown"),
        ("{data.batch_size|32}", None, "32"),
        ("{{{data.samples}}}", 3, "{3}"),
    ],
)
def test_a_message_reads_as_a_person_writes(template, value, read):
    name = template.strip("{}").split("|")[0].replace(".", "__", 1)

    assert text(template, **{name: value}) == read


@pytest.mark.parametrize(
    ("template", "value", "read"),
    [
        ("{data.decoded_bytes}", 4396410000, "4396410000"),
        ("{data.samples}", 16283, "16283"),
        ("{data.expansion}", 1.5, "1.5"),
        ("{data.is_ragged}", False, "False"),
        ("{data.dtype}", "uint8", '"uint8"'),
        ("{versions.keras}", 30401, '"3.4.1"'),
        ("{data.samples}", None, "..."),
        ("{data.batch_size|32}", None, "32"),
        ("{data.root|data}", None, '"data"'),
    ],
)
def test_code_holds_literals(template, value, read):
    name = template.strip("{}").split("|")[0].replace(".", "__", 1)

    assert code(template, **{name: value}) == read


def test_braces_that_are_meant_are_written_twice():
    assert code('{{"a": {data.samples}}}', data__samples=1) == '{"a": 1}'


@pytest.mark.parametrize(
    "template", ["{", "a } b", "{}", "{0}", "{data}", "{data.samples:>9}", "{a.b.c}"]
)
def test_any_other_brace_is_refused(template):
    with pytest.raises(ExpressionError, match=r"a lone [{}] near"):
        parse_template(template, {})


@given(st.text())
def test_a_string_literal_is_one_printable_line_that_gives_the_text_back(value):
    literal = string_literal(value)

    assert ast.literal_eval(literal) == value
    assert literal.isprintable()


@given(st.text())
def test_any_template_is_parsed_or_refused(template):
    try:
        parse_template(template, {}, is_code=True)
    except ExpressionError as error:
        assert str(error)  # noqa: PT017 - a template that parses is fine too


LABELS = """
{?data.labels_path}y = np.load({data.labels_path|y.npy})
{!data.labels_path}# y: your labels
{?data.labels_path}{?data.batch_size}size = {data.batch_size|32}
fit(x, y)
"""


def test_a_line_of_code_is_kept_only_where_its_fact_is_known():
    assert code(LABELS) == "\n# y: your labels\nfit(x, y)\n"
    assert code(LABELS, data__labels_path="a") == '\ny = np.load("a")\nfit(x, y)\n'
    both = code(LABELS, data__labels_path="a", data__batch_size=8)
    assert both == '\ny = np.load("a")\nsize = 8\nfit(x, y)\n'


@pytest.mark.parametrize("template", ["x = 1  {?data.root}", "{?data.rot}x = 1"])
def test_what_drops_a_line_must_begin_it_and_name_a_fact(template):
    with pytest.raises(ExpressionError, match=r"must begin one|Did you mean data\.root"):
        parse_template(template, {}, is_code=True)


def test_a_message_has_no_lines_to_drop():
    with pytest.raises(ExpressionError, match="must begin one"):
        parse_template("{?data.root}{data.root}", {})
