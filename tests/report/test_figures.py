"""Figures and the pages around them, as text: nothing gets through, and figures are right."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from oomdoctor.diagnose.bfc_dump import DumpReader
from oomdoctor.facts import Facts
from oomdoctor.report import page
from oomdoctor.report.page.figures import figures_of_value
from oomdoctor.report.page.figures.layers import layer_tree
from oomdoctor.report.page.figures.memory_map import memory_map
from oomdoctor.report.page.figures.scale import LogScale, spread

sys.path.insert(0, str(Path(__file__).parent))
from figures import MIB, blocks, crash, data, estimate_of, report_on, several, tuned
from pages import EVIL

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.open, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "input", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(html):
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


PAGES = {
    "estimate": lambda name: report_on(
        estimate_of([(f"{name}/a", MIB), (name, MIB)]), subject=name
    ),
    "tune": lambda name: replace(tuned(), subject=name),
    "data": lambda name: data(10_000, name=name),
    "crash": crash,
    "gate": lambda name: several(
        [report_on(estimate_of([(name, MIB)]), subject=name), data(9, name=name)]
    ),
}


@pytest.mark.parametrize("kind", PAGES)
def test_a_hostile_name_stays_text_on_every_page_and_nothing_outside_is_named(kind):
    html = page.render(PAGES[kind](EVIL + "\x1b[2J'\""))
    reader = read(html)
    assert EVIL not in html
    assert "\x1b" not in html
    assert html.count("&lt;script&gt;") >= 2
    assert reader.tags.count("script") == 1
    assert not any(key.startswith("on") for key, _ in reader.attributes)
    links = [value for key, value in reader.attributes if key in ("src", "href", "action")]
    assert all(value.startswith("#") for value in links)
    assert ("content", POLICY) in [(key, value[: len(POLICY)]) for key, value in reader.attributes]


@pytest.mark.parametrize(
    "report",
    [
        report_on(estimate_of(blocks(1_000))),
        report_on(estimate_of([(f"layer_{number}", MIB) for number in range(1_000)])),
        several(
            [report_on(estimate_of(blocks(1_000)), f"{card}") for card in ("t4", "l4", "p100")]
        ),
        data(1_000_000),
    ],
    ids=["blocks", "flat", "cards", "files"],
)
def test_large_subjects_make_small_pages(report):
    assert len(page.render(report).encode()) < 3 * 2**20


def test_the_tree_adds_up_and_names_what_a_block_holds_itself():
    tree = layer_tree([("a/b/c", 4 * MIB), ("a/b", MIB), ("a/d", MIB), ("e", MIB)], 7 * MIB)
    rows = re.findall(r'class="name" title="([^"]*)".*?class="size">([^<]*)<', tree)
    assert rows == [
        ("a", "6.00 MiB"),
        ("b", "5.00 MiB"),
        ("c", "4.00 MiB"),
        ("(itself)", "1.00 MiB"),
        ("d", "1.00 MiB"),
        ("e", "1.00 MiB"),
    ]


def test_every_card_is_drawn_where_its_memory_is_and_says_how_many_fit():
    cards = ("rtx3060-laptop", "colab-t4", "a100-80gb")
    html = page.render(several([report_on(estimate_of(), card) for card in cards]))
    names = re.findall(r'<g class="card (\w+)"><title>([\w-]+), ([\d.]+ GiB): up to (\d+)', html)
    assert [name for _, name, _, _ in names] == list(cards)
    assert [int(count) for *_, count in names] == [
        estimate_of().predicted_batch(
            report_on(estimate_of(), card).facts.machine.usable_vram_bytes
        )
        for card in cards
    ]
    lines = re.findall(r'<g class="card \w+">.*?<line x1="66" y1="([\d.]+)"', html)
    assert [float(y) for y in lines] == sorted(map(float, lines), reverse=True)


def test_a_table_that_a_figure_stands_for_is_left_out():
    html = page.render(report_on(estimate_of(blocks(20))))
    before_the_text = html.partition("The report as text")[0]
    assert "Where the memory goes" in before_the_text
    assert "At the peak, by layer" not in before_the_text
    import oomdoctor

    assert oomdoctor.estimate_memory  # the first public name used says what draws
    assert "At the peak, by layer" not in report_on(estimate_of(blocks(20)))._repr_html_()


def test_models_trained_in_two_precisions_are_two_choices():
    half = estimate_of(each=40 * MIB)
    html = page.render(
        several(
            [
                report_on(estimate_of(), subject="app:build, batch 32"),
                report_on(half, subject="app:build, batch 32, mixed_float16"),
            ]
        )
    )
    assert html.count('type="radio"') == 2
    assert "app:build, mixed_float16" in html


def test_a_notebook_shows_the_same_figures_without_a_script():
    report = report_on(estimate_of(blocks(50)))
    import oomdoctor

    assert oomdoctor.estimate_memory  # the first public name used says what draws
    html = report._repr_html_()
    reader = read(html)
    assert "script" not in reader.tags
    assert "input" not in reader.tags
    assert "polyline" in reader.tags
    assert "details" in reader.tags
    assert [figure.identity for figure in figures_of_value(report.facts.estimate)] == [
        "batches",
        "layers",
    ]


def test_the_map_has_a_cell_for_each_stretch_of_memory():
    drawn = memory_map(crash().facts.diagnosis)
    cells = re.findall(r'<i class="u(\d)">', drawn)
    assert len(cells) == 512
    assert cells.count("4") == cells.count("0") == 256
    assert "48.0 MiB was requested" in drawn


def test_a_dump_becomes_a_map_and_a_very_long_one_a_short_map():
    reader = DumpReader()
    reader.failed(1, "GPU_0_bfc")
    count = 9_000
    for number in range(count):
        state = "Free " if number % 3 == 0 else "InUse"
        reader.feed(
            number + 2, f"bfc_allocator.cc:1] {state} at 7f00{number:04x} of size 4096 next 1"
        )
    reader.feed(count + 2, "Limit: 134217728")
    reader.close()
    (dump,) = reader.dumps
    assert len(dump.runs) <= 2048
    assert sum(size for size, _ in dump.runs) == count * 4096
    assert sum(used for _, used in dump.runs) == count * 4096 * 2 // 3
    assert dump.sizes == ((4096, count * 2 // 3, count // 3),)


def test_scales_double_evenly_and_names_keep_apart():
    scale = LogScale(1, 1024, 0, 100)
    assert scale(32) == pytest.approx(50)
    assert scale.ticks(6) == [1, 4, 16, 64, 256, 1024]
    places = spread([5.0, 5.0, 5.0, 90.0], 10.0, 0.0, 100.0)
    gaps = [
        after - before for before, after in zip(sorted(places), sorted(places)[1:], strict=False)
    ]
    assert min(gaps) >= 10


def test_a_page_of_nothing_known_is_still_a_page():
    empty = several([], command="check")
    read(page.render(replace(empty, verdict="unknown", facts=Facts())))
