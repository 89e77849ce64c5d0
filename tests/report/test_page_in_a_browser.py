"""The page in a real Chromium, from a file: what a person sees and can do."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from oomdoctor.api.run import compare_runs, report_of
from oomdoctor.profile.conclude import profile_of
from oomdoctor.profile.store import load
from oomdoctor.recording import Phase
from oomdoctor.report import page as page_of

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "profile"))
from pages import EVIL, launched, long_recording, report_with
from recordings import write_example

pytestmark = [pytest.mark.browser]
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install .[dev]")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = launched(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def leak(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leak")
    return report_of(profile_of(load(write_example(folder, epochs=6))))


@pytest.fixture
def shown(browser, tmp_path):
    """A function that opens a page; at the end nothing may have gone wrong in any."""
    troubles, contexts = [], []

    def show(report, **how):
        file = tmp_path / f"report-{len(contexts)}.html"
        file.write_text(page_of.render(report), encoding="utf-8")
        contexts.append(browser.new_context(**how))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: troubles.append(request.url))
        page.goto(file.as_uri())
        assert troubles.pop(0) == file.as_uri()
        page.wait_for_selector(".plot svg path.series")
        return page

    yield show
    for context in contexts:
        context.close()
    assert troubles == []


def ticks(page):
    return page.locator(".plot").first.locator(".axes text").all_text_contents()


def drag(page, start, end):
    box = page.locator(".plot").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=4)
    page.mouse.up()


def test_the_answer_is_above_the_fold_and_the_figures_follow_the_pointer(leak, shown):
    page = shown(leak, viewport={"width": 1280, "height": 800})
    for selector in ("h1", ".todo a", ".tile", ".plot svg"):
        assert page.locator(selector).first.bounding_box()["y"] < 700, selector
    plot = page.locator(".plot").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 100)
    tip = page.locator(".tip:visible")
    assert tip.count() == 1
    told = tip.inner_text()
    assert "the program (RSS)" in told
    assert "epoch" in told
    assert "step" in told
    assert "of the limit" in told
    page.mouse.move(box["x"] + box["width"] * 0.97, box["y"] + 100)
    assert "forecast" in page.locator(".tip:visible").inner_text()
    page.mouse.move(5, 5)
    assert page.locator(".tip:visible").count() == 0


def test_dragging_zooms_all_timelines_and_a_double_click_shows_all(leak, shown):
    page = shown(leak, viewport={"width": 1280, "height": 1400})
    before = ticks(page)
    assert page.locator(".plot").count() == 3
    drag(page, 0.4, 0.6)
    zoomed = ticks(page)
    assert zoomed != before
    assert page.locator("button.reset:visible").count() == 2
    page.locator(".plot").first.dblclick()
    assert ticks(page) == before
    assert page.locator("button.reset:visible").count() == 0
    page.locator(".plot").first.press("+")
    assert ticks(page) != before
    page.locator(".plot").first.press("Escape")
    assert ticks(page) == before


def test_a_copy_button_copies_the_code_as_it_is(leak, shown):
    page = shown(leak, permissions=["clipboard-read", "clipboard-write"])
    code = next(finding.fix.code for finding in leak.findings if finding.fix is not None)
    page.locator("article button.copy").first.click()
    page.locator("article .copy", has_text="Copied").first.wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == code.rstrip()


def test_a_series_can_be_hidden(leak, shown):
    page = shown(leak)
    drawn = page.locator(".plot").first.locator("path.series")
    before = drawn.count()
    page.locator(".chart").first.locator(".key").first.click()
    assert drawn.count() == before - 1


def test_a_run_named_like_a_script_stays_text(tmp_path, shown):
    recording = load(write_example(tmp_path / "evil", name=EVIL))
    recording = replace(
        recording,
        error=EVIL,
        breakdown=replace(recording.breakdown, layers=((EVIL, 3),)),
        phases=(Phase(kind="epoch", label=EVIL, start_seconds=0.0, end_seconds=None),),
        samples=tuple(replace(sample, phase=EVIL) for sample in recording.samples),
        limits=tuple(replace(limit, source=EVIL) for limit in recording.limits),
    )
    page = shown(report_of(profile_of(recording, EVIL)))
    assert page.locator(".command").inner_text() == f"python {EVIL}"
    assert page.locator(".phase-name").first.text_content() == EVIL
    assert EVIL in page.locator(".limit-name").first.text_content()
    assert page.locator(".bars .name", has_text=EVIL).count() == 1
    assert page.title().startswith(EVIL)


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_in_light_and_dark_on_wide_and_narrow_screens(leak, shown, scheme, width):
    page = shown(leak, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colours = """(selector) => {
      const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((n) => {
        n /= 255; return n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4; });
      const light = (c) => 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
      const ink = light(parse(getComputedStyle(document.querySelector(selector)).color));
      const back = light(parse(getComputedStyle(document.body).backgroundColor));
      return [back, (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05)];
    }"""
    for selector in ("h1", ".kicker", ".tile .detail", "article p", "dt", ".hint", "a"):
        back, contrast = page.evaluate(colours, selector)
        assert contrast >= 4.5, selector
        assert (back < 0.1) == (scheme == "dark")


def test_names_in_a_timeline_do_not_lie_on_each_other(leak, shown):
    for width in (1280, 400):
        page = shown(leak, viewport={"width": width, "height": 900})
        boxes = page.evaluate(
            """() => [...document.querySelector('.plot').querySelectorAll('text.halo')].map((t) => {
              const b = t.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"""
        )
        assert len(boxes) >= 3
        for number, (left, top, right, bottom) in enumerate(boxes):
            for other in boxes[number + 1 :]:
                apart = (
                    right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
                )
                assert apart, json.dumps([boxes[number], other])


def test_a_long_run_is_drawn_with_no_more_points_than_pixels(shown):
    recording, _ = long_recording(60_000)
    page = shown(report_with(recording), viewport={"width": 1280, "height": 800})
    points = page.evaluate(
        "[...document.querySelectorAll('path.series')].map((p) => Number(p.dataset.points))"
    )
    assert max(points) <= 2 * 1280
    nodes = page.evaluate("document.querySelectorAll('*').length")
    assert nodes < 6000


def test_two_runs_are_drawn_into_one_picture(leak, tmp_path, shown):
    other = load(write_example(tmp_path / "other", leak_per_step=0, killed=False, name=EVIL * 20))
    comparison = compare_runs(leak, report_of(profile_of(other)))
    page = shown(comparison, viewport={"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator(".plot").first.locator("path.series").count() == 2
    page.locator(".plot").first.scroll_into_view_if_needed()
    box = page.locator(".plot").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    assert {"A", "B"} <= set(page.locator(".tip:visible").inner_text().split())
