"""What names a user or opens a door does not leave the house; what tells of the crash does."""

import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from oomdoctor.diagnose.redact import LONGEST, redact, redact_text
from oomdoctor.diagnose.run import diagnose_text

sys.path.insert(0, str(Path(__file__).parent))
from redaction_lines import LINES, SEEN

LOGS = sorted((Path(__file__).parents[2] / "fixtures" / "logs").glob("tf_*.log"))
SECONDS_A_MEGABYTE = 30
"""Generous: this machine may be busy. A regular expression that backtracks takes hours."""


@pytest.mark.parametrize("line", [*LINES, *SEEN], ids=lambda line: line.text[:48])
def test_nothing_of_the_user_is_left(line):
    redacted = redact_text(line.text)
    assert [secret for secret in line.gone if secret in redacted] == []


@pytest.mark.parametrize(
    "line", [line for line in (*LINES, *SEEN) if line.stay], ids=lambda line: line.text
)
def test_what_the_line_says_of_the_crash_is_left(line):
    redacted = redact_text(line.text)
    assert [part for part in line.stay if part not in redacted] == []


@pytest.mark.parametrize(
    "text",
    [
        "on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "OOM when allocating tensor with shape[32,64,250,250] and type float on /device:GPU:0",
        "Loaded cuDNN version 8.9.2.26",
        '_device="/job:localhost/replica:0/task:0/device:GPU:0"]()]]',
        "Failed to allocate 1024 bytes on host: CUDA_ERROR_OUT_OF_MEMORY",
        "nvidia-cublas-cu12            12.1.3.1",
        "nvidia-cudnn-cu12==8.9.2.26",
        "TensorFlow 2.21.0, Keras 3.12.0, CUDA 12.5.1, driver 550.54.15",
        "pciBusID: 0000:00:1e.0 name: Tesla T4 computeCapability: 7.5",
        "12/1563 ━━━━━ 3:12 124ms/step - accuracy: 0.1 - loss: 2.3",
        "80/4000 [00:26<18:58,  3.44it/s]",
        "max_tokens=2048, tokens: 512, pad_token_id: 0, token: 15",
        "gradient_tape/model_1/conv5_block3_2_conv/Conv2D/Conv2DBackpropFilter",
        "__inference_one_step_on_data_distributed_123456",
        "model/block1/conv/BatchNormalization/FusedBatchNormV3/ReadVariableOp/resource",
        "_________*********xxxxxxxxxxxxx______*********************************************",
        "std::bad_alloc in xla::gpu::GpuExecutable::ExecuteAsyncOnStream",
        "Unable to allocate 55.2 GiB for an array with shape (42128, 376, 1248, 3)",
        "anon-rss:64000000kB, file-rss:4kB, shmem-rss:0kB, UID:1000 pgtables:125kB",
        "2024-03-03 12:34:56.123456: W tensorflow/core/framework/op_kernel.cc:1828] OP_REQUIRES",
        "2024-03-03T12:34:56 INFO trainer: epoch 3",
        "W0312 12:34:56.123456 1234 bfc_allocator.cc:497] ***",
        "InUse at 7f9100000000 of size 268435456 next 12",
    ],
)
def test_ordinary_lines_are_not_touched(text):
    assert redact_text(text) == text


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_redacted_log_is_diagnosed_as_before(path):
    raw = path.read_text(encoding="utf-8", errors="replace")
    before, after = diagnose_text(raw), diagnose_text(redact_text(raw))
    shown = {"evidence", "alternatives"}  # they quote the lines
    same = [field.name for field in fields(before) if field.name not in shown]
    assert [n for n in same if getattr(before, n) != getattr(after, n)] == []
    assert [line for line, _ in before.evidence] == [line for line, _ in after.evidence]


def test_names_of_this_machine_go_unless_they_are_words_of_every_log():
    assert redact_text("adas_box: gpu", ["adas_box"]) == "<name>: gpu"
    assert redact_text("job root on localhost", ["root", "localhost"]) == "job root on localhost"


def test_names_in_ops_and_notes_go_too():
    log = (
        "OOM when allocating tensor with shape[1] and type float on /device:GPU:0 by allocator x\n"
        "\t [[{{node adalovelace_model/dense/MatMul}}]]\n"
    )
    assert "adalovelace" not in repr(redact(diagnose_text(log), ["adalovelace"]))


FILLERS = (
    *("a", "A1", "9", "/", "\\", "-", "_", ".", ":", "=", "@", " ", "'", '"', "a.", "a/", "'/"),
    *("a@", "a:", "1:", "f:", "password", "password=", "token:", "--", "--a", "Bearer ", "eyJa."),
    *(
        "a://",
        "sk-",
        "-----BEGIN PRIVATE KEY-----",
        "C:\\Users\\a ",
        "C:\\a b",
        "logged in as a (",
        "~a",
        "[a",
        "login -p ",
    ),
    *("cookie:", '\\"', "user=", "1.1.", "Jan  1 00:00:00 ", "2024-01-01T00:00:00 ", "a::", "1Q~"),
    *("site-packages/keras/", "\u0661", "é", ",1(", "ssh-rsa AAAA", "arn:aws:", "&sig=", "key="),
)


@pytest.mark.parametrize("filler", FILLERS)
def test_no_line_makes_it_backtrack(filler):
    for before in ("", " ", "password=", "'"):
        line = (before + filler * (LONGEST // 2 // len(filler) + 1))[: LONGEST // 2]
        started = time.perf_counter()
        redact_text(line)
        taken = time.perf_counter() - started
        assert taken < SECONDS_A_MEGABYTE * len(line) / 2**20 + 0.5, (before, filler)
