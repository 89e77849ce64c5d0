"""Any input becomes lines, in constant memory."""

import gzip
import io
import json
import tracemalloc

import pytest

from oomdoctor.diagnose.read import BUDGET, CHUNK, Reader
from oomdoctor.diagnose.run import diagnose_files, diagnose_text
from oomdoctor.errors import InputError

OOM = "OOM when allocating tensor with shape[32,64] and type float on /device:GPU:0 by allocator x"
FILLER = "10/1563 [=====>....] - ETA: 12s - loss: 0.1234 - accuracy: 0.9876\n"


def lines(raw):
    return list(Reader().lines(["-"], io.BytesIO(raw)))


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "utf-32"]
)
def test_any_encoding_is_read(tmp_path, encoding):
    path = tmp_path / "train.log"
    path.write_bytes(f"Épocas: 1/5 – começo\n{OOM}\n".replace("–", "-").encode(encoding))
    diagnosis = diagnose_files([path], None)
    assert diagnosis.shape == (32, 64)
    assert diagnosis.evidence[0][0] == 2


def test_colours_and_progress_bars_are_taken_apart():
    raw = b"\x1b[32m 20%|##  | 1/5\r 40%|#### | 2/5\x1b[0m\r" + OOM.encode() + b"\x1b[K\n"
    assert [text for _, text in lines(raw)][-1] == OOM


def test_records_glued_together_are_split():
    glued = (
        "Step 79 [00:26<18:58]2023-10-02 16:36:14.402881: W tensorflow/tsl/bfc_allocator.cc:485] a "
        "2023-10-02 16:36:14.402957: I tensorflow/tsl/bfc_allocator.cc:1039] b"
    )
    assert len(lines(glued.encode())) == 3


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,3]<stderr>:",
        "trainer_1  | ",
        "2023-01-01T10:11:12.123456789Z stderr F ",
        "2023-01-01T10:11:12Z ",
        "(train pid=4711, ip=10.0.0.3) ",
        "# ",
        "> > ",
    ],
)
def test_what_a_launcher_puts_before_a_line_is_taken_off(prefix):
    assert lines(f"{prefix}MemoryError\n".encode()) == [(1, "MemoryError")]
    assert diagnose_text(f"{prefix}MemoryError\n").cause == "host_exhausted"


def test_a_timestamp_stays_with_its_message():
    line = "2023-10-02 16:36:14.402881: W tensorflow/tsl/framework/bfc_allocator.cc:485] message"
    assert lines(line.encode()) == [(1, line)]


def test_newlines_that_were_written_as_letters_are_newlines():
    assert (
        diagnose_text(f"Error: 'Graph execution error:\\n\\n{OOM}\\n\\t [[{{{{node a/b}}}}]]'").op
        == "a/b"
    )


def test_a_notebook_is_read_by_its_outputs(tmp_path):
    path = tmp_path / "a.ipynb"
    outputs = [
        {"output_type": "stream", "text": ["Epoch 1/5\n", "loss: 0.5\n"]},
        {"output_type": "error", "ename": "X", "evalue": OOM, "traceback": ["\x1b[0;31mX\x1b[0m"]},
    ]
    source = ["# MemoryError is only spoken of here"]
    cells = [{"cell_type": "code", "source": source, "outputs": outputs}, {"cell_type": "markdown"}]
    path.write_text(json.dumps({"cells": cells}))
    assert diagnose_files([path], None).cause == "gpu_exhausted"


@pytest.mark.parametrize("content", ["{", "[]", '{"cells": 3}', '{"cells": [3]}', OOM])
def test_what_is_no_notebook_is_read_as_text(tmp_path, content):
    path = tmp_path / "a.ipynb"
    path.write_text(content)
    diagnosis = diagnose_files([path], None)
    assert any("not a notebook" in note for note in diagnosis.notes)


def test_a_folder_of_job_logs_is_one_run(tmp_path):
    (tmp_path / "job.o4711").write_text("Epoch 1/5\n")
    (tmp_path / "job.e4711").write_text("Killed\n")
    (tmp_path / "weights.bin").write_text("OOM when allocating tensor with shape[1]")
    assert diagnose_files([tmp_path], None).cause == "host_killed"


def test_several_files_are_named_in_the_evidence(tmp_path):
    (tmp_path / "a.log").write_text("one\ntwo\n")
    (tmp_path / "b.log").write_text(OOM)
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    assert diagnose_files(paths, None).evidence == ((1, f"b.log: {OOM}"),)
    assert diagnose_files(paths[::-1], None).evidence == ((1, f"b.log: {OOM}"),)


def test_gzip_is_unpacked_even_when_cut_short(tmp_path):
    path = tmp_path / "a.log.gz"
    packed = gzip.compress((f"{OOM}\n" + FILLER * 100_000).encode())
    path.write_bytes(packed[: len(packed) // 2])
    diagnosis = diagnose_files([path], None)
    assert diagnosis.cause == "gpu_exhausted"
    assert any("damaged" in note for note in diagnosis.notes)


@pytest.mark.parametrize("name", ["missing.log", "empty"])
def test_what_cannot_be_read_is_an_input_error(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=name):
        diagnose_files([tmp_path / name], None)


@pytest.mark.parametrize("place", [0.0, 0.4, 0.7, 1.0])
def test_a_failure_anywhere_in_a_long_log_is_found_at_its_line(tmp_path, place):
    path = tmp_path / "long.log"
    count = 6 * CHUNK // len(FILLER)
    before = int(count * place)
    path.write_text(FILLER * before + OOM + "\n" + FILLER * (count - before))
    assert diagnose_files([path], None).evidence == ((before + 1, OOM),)


def test_a_long_log_takes_little_memory(tmp_path):
    path = tmp_path / "long.log"
    path.write_text((FILLER * 50 + OOM + "\n") * 8000)
    tracemalloc.start()
    diagnose_files([path], None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * CHUNK < path.stat().st_size


def test_a_log_full_of_messages_is_read_within_a_budget(tmp_path):
    path = tmp_path / "full.log"
    path.write_text((OOM + "\n") * (4 * BUDGET // len(OOM)))
    diagnosis = diagnose_files([path], None)
    assert diagnosis.cause == "gpu_exhausted"
    assert any("passed over" in note for note in diagnosis.notes)


def test_one_line_of_megabytes_does_not_hurt(tmp_path):
    path = tmp_path / "line.log"
    path.write_bytes(b"\xff\x00x" * 3_000_000 + b"\n" + OOM.encode())
    assert diagnose_files([path], None).cause == "gpu_exhausted"
