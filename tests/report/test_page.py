"""The page as text: nothing from outside gets through, and nothing in it reaches out."""

import json
import random
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from oomdoctor.api.run import report_of
from oomdoctor.cli import main
from oomdoctor.profile.conclude import profile_of
from oomdoctor.profile.store import load
from oomdoctor.recording import Limit, Phase, Recording
from oomdoctor.report import page
from oomdoctor.report.page.markup import data_island, tag
from oomdoctor.report.page.run.timeline import MOST_BUCKETS, kept_indices

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "profile"))
from pages import EVIL, long_recording, report_with
from recordings import write_example


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    return reader


def data_of(html):
    island = re.search(r'<script type="application/json" id="oomdoctor-data">(.*?)</script>', html)
    return json.loads(island[1])


def test_names_of_strangers_stay_text_wherever_they_come(tmp_path):
    recording = load(write_example(tmp_path / EVIL.replace("/", "-"), name=EVIL))
    breakdown = replace(recording.breakdown, layers=((EVIL, 3),), parts=((EVIL, 3),))
    recording = replace(
        recording,
        breakdown=breakdown,
        error=f"{EVIL}\n<!-- \u2028 \x1b[2J",
        notes=(EVIL,),
        phases=(Phase(kind="epoch", label=EVIL, start_seconds=0.0, end_seconds=None),),
        suspects=tuple(replace(one, what=EVIL, advice=EVIL) for one in recording.suspects),
        pipeline=tuple(replace(one, label=EVIL) for one in recording.pipeline),
        limits=(Limit(what="host", limit_bytes=2**31, source=EVIL),),
    )
    html = page.render(report_of(profile_of(recording, EVIL)))
    reader = read(html)
    assert EVIL not in html
    assert reader.tags.count("script") == 2
    assert "".join(reader.text).count(EVIL) >= 8
    assert "\x1b" not in html
    assert "\u2028" not in html


def test_the_page_refers_to_nothing_outside_itself(tmp_path):
    html = page.render(report_of(profile_of(load(write_example(tmp_path)))))
    references = [
        value for key, value in read(html).attributes if key in ("src", "href", "action", "data")
    ]
    assert references
    assert all(value.startswith("#") for value in references)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\((?!#)", html)
    assert any("default-src 'none'" in (value or "") for _, value in read(html).attributes)


def test_the_verdict_and_the_first_remedy_come_before_the_timeline(tmp_path):
    html = page.render(report_of(profile_of(load(write_example(tmp_path, epochs=6)))))
    assert html.index("<h1>System RAM ran out: ended by the cap of --ram") < html.index("#change-1")
    assert html.index("#change-1") < html.index('id="timeline"')
    for identity in ("change", "end", "growth", "peak", "phases"):
        assert f'id="{identity}"' in html


def test_a_day_at_ten_hertz_stays_small_and_keeps_every_peak():
    recording, peaks = long_recording(864_000)
    html = page.render(report_with(recording))
    assert len(html.encode()) < 5_000_000
    drawn = data_of(html)["charts"][0]["series"][0]["v"]
    assert len(drawn) < 20_000
    # In a bucket of many samples only the highest of two lone peaks is sure to be drawn.
    assert max(peaks) in drawn
    bucket = 864_000 // MOST_BUCKETS
    sizes = [sample.rss_bytes for sample in recording.samples]
    assert {max(sizes[start : start + bucket]) for start in range(0, 864_000, bucket)} <= set(drawn)


def test_thinning_keeps_the_highest_and_lowest_of_each_series_and_both_ends():
    one = [random.Random(1).randrange(1000) for _ in range(1000)]
    other = [None if index % 3 else index * 7919 % 1009 for index in range(1000)]
    kept = kept_indices([one, other], 50)
    assert {0, 999} <= set(kept)
    for start in range(0, 1000, 20):
        for column in (one, other):
            known = [column[index] for index in range(start, start + 20)]
            known = [size for size in known if size is not None]
            shown = {column[index] for index in kept if start <= index < start + 20}
            assert {max(known), min(known)} <= shown


def test_a_list_that_does_not_grow_and_holds_little_is_not_suspected(tmp_path):
    recording = load(write_example(tmp_path, epochs=6))
    registry = replace(recording.suspects[0], what="REGISTRY (dict)", per_step=None, held_bytes=1)
    shown = replace(recording, suspects=(*recording.suspects, registry))
    html = page.render(report_of(profile_of(shown)))
    table = html[html.index("Objects that may keep memory") : html.index('id="phases"')]
    assert "losses (list)" in table
    assert "REGISTRY" not in table


def test_a_short_run_is_not_thinned():
    assert kept_indices([list(range(10))], 5) == list(range(10))


def test_a_run_of_which_nothing_was_seen_still_has_a_page():
    recording = Recording(command=(), started_at=0.0, samples=())
    html = page.render(report_with(recording))
    assert "Not seen" in html
    assert data_of(html)["charts"][0]["series"] == []


def test_elements_escape_what_they_hold():
    made = tag("p", '<b>"', title='" onload="x')
    assert made == '<p title="&quot; onload=&quot;x">&lt;b&gt;&quot;</p>'


def test_embedded_json_cannot_end_its_element():
    made = data_island("d", ["</script><!--", "\u2028", "&"])
    inside = made.removeprefix('<script type="application/json" id="d">').removesuffix("</script>")
    assert not set(inside) & set("<>&\u2028")
    assert json.loads(inside) == ["</script><!--", "\u2028", "&"]


def test_the_command_writes_the_page_beside_the_recording(tmp_path):
    folder = write_example(tmp_path / "run")
    with pytest.raises(SystemExit):
        main(["profile", "--from", str(folder)])
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "System RAM ran out: ended by the cap of --ram" in html
