"""The pages of estimate, check, tune and diagnose in a real Chromium."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from oomdoctor.report import page as page_of

sys.path.insert(0, str(Path(__file__).parent))
from figures import MIB, blocks, crash, data, estimate_of, report_on, several, tuned
from pages import EVIL, launched

pytestmark = [pytest.mark.browser]
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install .[dev]")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = launched(playwright)
        yield browser
        browser.close()


@pytest.fixture
def shown(browser, tmp_path):
    """A function that opens a page; at the end nothing may have gone wrong in any."""
    troubles, contexts = [], []

    def show(report, **how):
        file = tmp_path / f"page-{len(contexts)}.html"
        file.write_text(page_of.render(report), encoding="utf-8")
        contexts.append(browser.new_context(**how))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: troubles.append(request.url))
        page.goto(file.as_uri())
        assert troubles.pop(0) == file.as_uri()
        return page

    yield show
    for context in contexts:
        context.close()
    assert troubles == []


def all_pages():
    return {
        "estimate": report_on(estimate_of(blocks(1_000))),
        "cards": several([report_on(estimate_of(), card) for card in ("t4", "rtx3060-laptop")]),
        "tune": tuned(),
        "check": data(1_000_000),
        "diagnose": crash(),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_page_can_be_read_in_light_and_dark_wide_and_narrow(shown, scheme, width):
    for name, report in all_pages().items():
        page = shown(report, color_scheme=scheme, viewport={"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.locator("h1").first.bounding_box()["y"] < 200
        contrasts = page.evaluate(
            """() => {
          const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((n) => {
            n /= 255; return n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4; });
          const light = (c) => 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
          const back = light(parse(getComputedStyle(document.body).backgroundColor));
          const of = (node, key) => { const ink = light(parse(getComputedStyle(node)[key]));
            return (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05); };
          const nodes = [...document.querySelectorAll('.name, .share, .verdict, .hint, th, td')];
          const texts = [...document.querySelectorAll('.wide .axes text, .wide .card text')];
          return [...nodes.map((n) => of(n, 'color')), ...texts.map((n) => of(n, 'fill'))];
        }"""
        )
        assert min(contrasts) >= 4.5, name


def test_the_slider_answers_what_if_by_keyboard(shown):
    page = shown(all_pages()["cards"])
    verdicts = page.locator("td.verdict")
    assert verdicts.all_inner_texts() == ["✓ fits", "✓ fits"]
    before = page.locator("output").inner_text()
    page.locator("input[type=range]").focus()
    page.keyboard.press("End")
    assert verdicts.all_inner_texts() == ["✗ does not fit", "✗ does not fit"]
    assert page.locator("output").inner_text() != before
    page.keyboard.press("Home")
    assert verdicts.all_inner_texts() == ["✓ fits", "✓ fits"]
    assert page.locator("th .at").inner_text() == "1"
    assert "380 MiB" in page.locator("output").inner_text()
    told = page.locator("input[type=range]").get_attribute("aria-valuetext")
    assert told.startswith("1, peak 380 MiB")


def test_one_of_two_precisions_is_seen_at_a_time(shown):
    half = report_on(estimate_of(each=40 * MIB), subject="app:build, batch 32, mixed_float16")
    page = shown(several([report_on(estimate_of()), half]))
    assert page.locator(".batches:visible").count() == 1
    page.locator(".picks input").nth(1).check()
    assert page.locator(".batches:visible").count() == 1
    assert "1.54 GiB" in page.locator(".batches:visible output").inner_text()


def test_layers_open_from_model_to_block_to_layer_by_keyboard(shown):
    page = shown(report_on(estimate_of(blocks(1_000))))
    rows = page.locator(".tree .row:visible")
    before = rows.count()
    page.locator(".tree summary").first.focus()
    page.keyboard.press("Enter")
    opened = rows.count()
    assert opened > before
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert rows.count() > opened
    assert page.locator(".tree .name:visible", has_text="layer_").count() == 10


def test_hostile_names_are_shown_as_they_are(shown):
    layers = [(f"{EVIL.replace('/', '|')}/a", MIB), ("b", MIB)]
    page = shown(report_on(estimate_of(layers), subject=EVIL))
    assert page.locator(".command").inner_text() == EVIL
    page = shown(replace(data(1000, name=EVIL), subject=EVIL))
    assert page.locator("td", has_text=EVIL).count() >= 1
    page = shown(crash(EVIL))
    assert EVIL in page.locator(".tile", has_text="Layer").inner_text()


@pytest.mark.parametrize("name", ["estimate", "diagnose"])
def test_it_prints_on_paper(shown, name):
    page = shown(all_pages()[name], color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("button.copy:visible").count() == 0
    assert page.locator("input[type=range]:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(page.pdf()) > 10_000


def test_a_thousand_layers_and_a_million_files_stay_quick(shown):
    for report in (all_pages()["estimate"], all_pages()["check"]):
        page = shown(report)
        assert page.evaluate("document.querySelectorAll('*').length") < 12_000
        page.locator("summary").first.click()
        page.wait_for_function("document.querySelector('details').open")


def test_everything_has_a_name_for_a_screen_reader(shown):
    for name, report in all_pages().items():
        page = shown(report)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('svg, [role=img], input, button')].filter((n) =>
              !n.getAttribute('aria-label') && !n.textContent.trim() && !n.labels?.length).length"""
        )
        assert nameless == 0, name
        assert page.locator("h1").count() == 1
        assert page.evaluate("document.documentElement.lang") == "en"
