"""What names the user does not leave the house."""

import pytest

from oomdoctor.diagnose.redact import redact, redact_text
from oomdoctor.diagnose.run import diagnose_text


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ('File "/home/ada/project/train.py", line 3', "ada"),
        ("/Users/ada/work/run.log: no", "ada"),
        (r'File "C:\Users\Ada Lovelace\train.py"', "Lovelace"),
        ("~/secret-project/train.py", "secret-project"),
        ("ada@gpu-node-17:~$ python train.py", "ada"),
        ("ada@gpu-node-17:~$ python train.py", "gpu-node-17"),
        ("mail ada@example.org", "example"),
        ("connecting to 10.12.13.14:8888", "10.12"),
        ("fe80:0:0:0:202:b3ff:fe1e:8329 is up", "b3ff"),
        ("srun: error: nid00123: task 0: Out Of Memory", "nid00123"),
        ("http://jupyter.internal:8888/?token=abcdef0123456789", "abcdef"),
        ("ssh login1.cluster.uni.edu", "uni.edu"),
        ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
        ("hf_AbCdEfGhIjKlMnOpQrStUvWx", "AbCdEf"),
    ],
)
def test_what_names_the_user_is_taken_out(text, gone):
    assert gone not in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating",
        "2 Chunks of size 13200000000 totalling 24.59GiB",
        "Limit:                     40231108608",
        "80/4000 [00:26<18:58,  3.44it/s]",
        "[[{{node model/conv2d_17/Relu_1}}]]",
        "I tensorflow/core/common_runtime/bfc_allocator.cc:917] 1 Chunks of size 138752",
    ],
)
def test_what_tells_of_the_crash_stays(text):
    assert redact_text(text) == text


def test_names_of_this_machine_are_taken_out():
    assert redact_text("host bigbox says no", ["bigbox"]) == "host <name> says no"


def test_a_whole_diagnosis_is_cleaned():
    text = 'File "/home/ada/train.py", line 3, in <module>\n/home/ada/x: line 1:  7 Killed   python'
    cleaned = redact(diagnose_text(text), ["ada"])
    assert "ada" not in repr(cleaned)
    assert cleaned.source_line == "train.py:3"
