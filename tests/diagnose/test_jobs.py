"""What kernels, schedulers and clusters say of a job that used too much memory."""

import pytest

from oomdoctor.diagnose.run import diagnose_text

GIB = 2**30
KIB = 2**10

TOLD = {
    "kubectl describe": (
        "      Reason:       OOMKilled\n      Exit Code:    137\n    Limits:\n      cpu:     4\n"
        "      memory:  8Gi\n    Requests:\n      cpu:     2\n      memory:  4Gi\n",
        None,
        8 * GIB,
    ),
    "kubectl describe, requests alone": (
        "      Reason:       OOMKilled\n    Requests:\n      memory:  4Gi\n",
        None,
        None,
    ),
    "evicted": (
        "The node was low on resource: memory. Container main was using 14876452Ki, which exceeds "
        "its request of 8Gi.\n",
        14876452 * KIB,
        None,
    ),
    "evicted, since 1.27": (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 56912Ki. "
        "Container main was using 14876452Ki, request is 8Gi, has larger consumption of memory.\n",
        14876452 * KIB,
        None,
    ),
    "kernel, a control group": (
        "[1.5] memory: usage 8388608kB, limit 8388608kB, failcnt 12\n"
        "[1.5] memory+swap: usage 0kB, limit 9007199254740988kB, failcnt 0\n"
        "[1.5] Memory cgroup out of memory: Killed process 45 (python3) total-vm:24467892kB, "
        "anon-rss:8256012kB, file-rss:312kB, shmem-rss:0kB\n",
        8256012 * KIB,
        8 * GIB,
    ),
    "kernel, no limit": (
        "[1.5] memory: usage 8388608kB, limit 9007199254740988kB, failcnt 12\n"
        "[1.5] python invoked oom-killer: gfp_mask=0x24280ca, order=0, oom_score_adj=0\n",
        8 * GIB,
        None,
    ),
    "Slurm, in KiB": (
        "slurmstepd: error: Step 812.0 exceeded memory limit (16908288 > 16777216), being killed\n",
        16908288 * KIB,
        16 * GIB,
    ),
    "Slurm, in bytes": (
        "slurmstepd: error: StepId=8.0 exceeded memory limit (17314086912 > 17179869184), being "
        "killed\n",
        17314086912,
        16 * GIB,
    ),
    "sacct": ("123.batch|OUT_OF_MEMORY|0:125|31457280K|32G\n", None, None),
    "YARN": (
        "Container killed by YARN for exceeding memory limits. 9.5 GB of 9 GB physical memory used."
        " Consider boosting spark.yarn.executor.memoryOverhead.\n",
        int(9.5 * GIB),
        9 * GIB,
    ),
    "Ray": (
        "Memory on the node (IP: 10.0.0.1, ID: ab) where the task (task ID: cd) was running was "
        "29.50GB / 31.00GB (0.951613), which exceeds the memory usage threshold of 0.95.\n",
        int(29.5 * GIB),
        31 * GIB,
    ),
    "PBS": (
        "=>> PBS: job killed: mem 17010420kb exceeded limit 16777216kb\n",
        17010420 * KIB,
        16 * GIB,
    ),
    "LSF": (
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n"
        "    Max Memory :                                 4096 MB\n"
        "    Total Requested Memory :                     4096.00 MB\n",
        4 * GIB,
        4 * GIB,
    ),
    "HTCondor": (
        "Error from slot1@n: Job has gone over memory limit of 2048 megabytes. Peak usage: 2105 "
        "megabytes.\n",
        2105 * 2**20,
        2 * GIB,
    ),
    "SGE": (
        'job 12345.1 exceeded hard limit "h_vmem" of queue "gpu.q@n" (8623489024.00000 > '
        "limit:8589934592.00000) - sending SIGKILL\n",
        8623489024,
        8 * GIB,
    ),
    "systemd": (
        "systemd-oomd[812]: Killed /user.slice/user-1000.slice/python due to memory used "
        "(15872765952) / total (16623968256) and swap used (1) / total (2)\n",
        15872765952,
        16623968256,
    ),
    "docker inspect": ('"OOMKilled": true,\n"ExitCode": 137,\n', None, None),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_killed_job_is_told_with_its_use_and_its_limit(name):
    text, used, limit = TOLD[name]
    diagnosis = diagnose_text(text)

    assert diagnosis.cause == "host_killed"
    assert (diagnosis.in_use_bytes, diagnosis.limit_bytes) == (used, limit)


def test_a_container_that_was_not_killed_for_memory_is_not_taken_for_one():
    text = '"OOMKilled": false,\n"ExitCode": 1,\nValueError: bad shape\n'
    assert diagnose_text(text).cause == "not_memory"


ARRAYS = {
    "since NumPy 1.18": (
        "MemoryError: Unable to allocate 293. GiB for an array with shape (400000, 512, 512, 3) "
        "and data type uint8",
        (400000, 512, 512, 3),
        400000 * 512 * 512 * 3,
    ),
    "before": (
        "MemoryError: Unable to allocate array with shape (60000, 224, 224, 3) and data type "
        "float64",
        (60000, 224, 224, 3),
        60000 * 224 * 224 * 3 * 8,
    ),
    "without a blank": (
        "Memory error: unable to allocate array with shape(40000,50000) and data type float32",
        (40000, 50000),
        40000 * 50000 * 4,
    ),
    "text of four bytes a letter": (
        "MemoryError: Unable to allocate 5.34 GiB for an array with shape (10000, 143360) and data "
        "type <U1",
        (10000, 143360),
        10000 * 143360 * 4,
    ),
    "beyond any address": (
        "ValueError: array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum "
        "possible size.",
        None,
        None,
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_does_not_fit_is_read_in_every_wording(name):
    text, shape, size = ARRAYS[name]
    diagnosis = diagnose_text(text)

    assert diagnosis.cause == "host_array_too_large"
    assert (diagnosis.shape, diagnosis.requested_bytes) == (shape, size)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (
            "cv2.error: OpenCV(4.5.1) alloc.cpp:73: error: (-4:Insufficient memory) Failed to "
            "allocate 536870912 bytes in function 'OutOfMemoryError'",
            536870912,
        ),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 2147483712 failed", 2147483712),
        ("pandas.errors.ParserError: Error tokenizing data. C error: out of memory", None),
        ("OSError: [Errno 12] Cannot allocate memory", None),
    ],
)
def test_other_libraries_that_run_out_of_ram_are_known(text, size):
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, diagnosis.requested_bytes) == ("host_exhausted", size)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("Message tensorflow.SavedModel exceeds maximum protobuf size of 2GB: 97895580", 97895580),
        (
            "InvalidArgumentError: Cannot serialize protocol buffer of type tensorflow.GraphDef as "
            "the serialized size (2643020353bytes) would be larger than the limit (2147483647 "
            "bytes)",
            2643020353,
        ),
        ("ValueError: GraphDef cannot be larger than 2GB.", None),
    ],
)
def test_a_graph_above_its_limit_is_told_with_its_size(text, size):
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, diagnosis.requested_bytes) == ("tensor_proto_too_large", size)
    assert diagnosis.limit_bytes == 2**31
