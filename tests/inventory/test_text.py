from __future__ import annotations

import gzip
import json
import os

import pytest

from oomdoctor.inventory.text import read


def the_part(path):
    (part,) = read(str(path), os.path.getsize(path))
    return part


def test_a_text_file_is_one_sample_of_its_bytes(tmp_path):
    (tmp_path / "a.txt").write_text("a review of some film\n" * 10)
    part = the_part(tmp_path / "a.txt")
    assert (part.format, part.kind, part.samples) == ("text", "text", 1)
    assert (part.memory_bytes, part.elements, part.dtype) == (220 + 24, None, None)


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
def test_json_lines_are_a_sample_each(tmp_path, name):
    text = "\n".join(json.dumps({"i": i}) for i in range(500)).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    part = the_part(tmp_path / name)
    assert (part.format, part.samples, part.is_exact) == ("jsonl", 500, True)
    assert part.memory_bytes == len(text) + 500 * 24
    assert part.is_compressed == name.endswith("gz")


def test_lines_of_a_large_file_are_estimated_close_by(tmp_path):
    with open(tmp_path / "a.jsonl", "w") as file:
        file.writelines(json.dumps({"text": "word " * (i % 40)}) + "\n" for i in range(100_000))
    part = the_part(tmp_path / "a.jsonl")
    assert not part.is_exact
    assert part.samples == pytest.approx(100_000, rel=0.05)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_binary_file_is_not_text(tmp_path, hostile, name):
    (tmp_path / name).write_bytes(b"\x7fELF\0\0\0" * 100)
    assert hostile.reason(read, tmp_path / name) == "not text"


def test_other_text_is_not_json_lines(tmp_path, hostile):
    (tmp_path / "a.jsonl").write_text("hello\nworld\n")
    assert hostile.reason(read, tmp_path / "a.jsonl") == "not JSON Lines, or damaged"


def test_an_empty_file_holds_no_lines_and_an_empty_text(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "a.txt").write_bytes(b"")
    assert the_part(tmp_path / "a.jsonl").samples == 0
    assert the_part(tmp_path / "a.txt").samples == 1


def test_damaged_lines_are_refused_or_counted_and_never_more(tmp_path, hostile):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 300))
    hostile.survives_cuts(read, path)
    hostile.survives_changes(read, path)
