"""Messages in every documented wording, from TensorFlow 0.x to XLA main, and of the systems."""

import pytest

from oomdoctor.diagnose.run import diagnose_text

GIB = 2**30
STATS = """
Limit:                 {limit}
InUse:                 {used}
MaxInUse:              {used}
NumAllocs:                    2205
MaxAllocSize:           3416064000
"""
OLD = "2018-05-18 17:01:53.022692: {level} tensorflow/core/common_runtime/bfc_allocator.cc:275] "
W, INFO = OLD.format(level="W"), OLD.format(level="I")
FULL = STATS.format(limit=11331628237, used=11331000000)
OOM = "ResourceExhaustedError: OOM when allocating tensor with shape[25,112,112,20]"

HEADERS = {
    "0.x": "W tensorflow/core/common_runtime/bfc_allocator.cc:271] Ran out of memory trying to "
    "allocate 23.93MiB.  See logs for memory state.",
    "1.4": W + "Allocator (GPU_0_bfc) ran out of memory trying to allocate 23.93MiB.  Current "
    "allocation summary follows.",
    "1.14": W + "Allocator (GPU_0_bfc) ran out of memory trying to allocate 23.93MiB (rounded to "
    "25088000).  Current allocation summary follows.",
    "2.2": W + "Allocator (GPU_0_bfc) ran out of memory trying to allocate 23.93MiB (rounded to "
    "25088000)requested by op model/conv2d/Conv2D\nCurrent allocation summary follows.",
    "2.5": W + "Allocator (GPU_0_bfc) ran out of memory trying to allocate 23.93MiB (rounded to "
    "25088000)requested by op model/conv2d/Conv2D\nIf the cause is memory fragmentation maybe the "
    "environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. \n"
    "Current allocation summary follows.\nCurrent allocation summary follows.",
    "2.21": "W0000 00:00:1794790879.992772    9492 bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran "
    "out of memory trying to allocate 23.93MiB (rounded to 25088000)requested by op conv2d/Conv2D",
    "main": "W0615 10:11:12.992772    9492 bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of "
    "memory trying to allocate 23.93MiB (rounded to 25088000) from the lower end requested by op "
    "conv2d/Conv2D\nIf this is caused by memory fragmentation, the environment variable "
    "'TF_GPU_ALLOCATOR=cuda_malloc_async' may improve the situation.",
}


@pytest.mark.parametrize("version", HEADERS)
def test_the_header_of_every_version_is_a_failure(version):
    diagnosis = diagnose_text(HEADERS[version] + FULL + OOM)
    assert diagnosis.cause == "gpu_exhausted"
    assert diagnosis.requested_bytes == 25 * 112 * 112 * 20 * 4
    assert diagnosis.shape == (25, 112, 112, 20)
    assert (diagnosis.limit_bytes, diagnosis.in_use_bytes) == (11331628237, 11331000000)


@pytest.mark.parametrize("version", ["1.14", "2.2", "2.5", "2.21", "main"])
def test_the_rounded_size_is_exact_where_no_shape_is_told(version):
    assert diagnose_text(HEADERS[version] + FULL).requested_bytes == 25088000


@pytest.mark.parametrize(
    "chunks",
    [
        "Chunk at 0x23047a0100 of size {used}\n{i}Free at 0x2304 of size 2000000",
        "InUse at 0x7fa5 next 1 of size {used}\n{i}Free  at 0x7fa6 next 2 of size 2000000",
        "InUse at 7fa376f1e040 of size {used} next 1\n{i}Free  at 7fa376 of size 2000000 next 18",
        "InUse at 7fa376f1e040 of size {used} next 1 tag w\n{i}Free  at 7f of size 2000000 next 2",
    ],
)
def test_chunks_are_read_in_every_wording(chunks):
    used = 3 * GIB
    text = (
        W + "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to "
        f"1073741824)requested by op Mul\n{INFO}{chunks.format(used=used, i=INFO)}\n"
        + STATS.format(limit=4 * GIB + 100, used=used)
    )
    diagnosis = diagnose_text(text)
    assert diagnosis.cause == "gpu_fragmented"
    assert "1.91 MiB" in diagnosis.summary
    assert diagnosis.holders[0][1] == used


@pytest.mark.parametrize(
    "pool",
    [
        "total_region_allocated_bytes_: 568350976 memory_limit_: 568351129 available bytes: 153",
        "Total bytes in pool: 568350976 memory_limit_: 568351129 available bytes: 153",
    ],
)
def test_the_limit_is_read_without_statistics(pool):
    text = f"{HEADERS['2.2']}\n{INFO}{pool} curr_region_allocation_bytes_: 1073741824\n{OOM}"
    assert diagnose_text(text).limit_bytes == 568351129


def test_statistics_for_people_are_read():
    text = HEADERS["2.21"] + "\nLimit: 256.00MiB\nInUse: 254.00MiB\nNumAllocs: 12\n"
    diagnosis = diagnose_text(text)
    assert (diagnosis.limit_bytes, diagnosis.in_use_bytes) == (256 * 2**20, 254 * 2**20)


def test_the_summary_of_xla_main_tells_fragmentation():
    text = HEADERS["main"] + (
        "\nI0615 bfc.cc:9] Allocator memory summary: rounded request 23.93MiB, total free "
        "in pool 1.00GiB, largest free chunk usable by lower end 12.00MiB, unallocated bytes 0B, "
        "pool size 4.00GiB, pool limit 4.00GiB\nLimit: 4.00GiB\nInUse: 3.00GiB\n"
    )
    diagnosis = diagnose_text(text)
    assert diagnosis.cause == "gpu_fragmented"
    assert "12.0 MiB" in diagnosis.summary


def test_a_shape_of_the_first_versions_is_read():
    text = (
        "Resource exhausted: OOM when allocating tensor with shapedim { size: 64 } dim { size: 9 }"
    )
    assert diagnose_text(text).shape == (64, 9)


CAUSES = {
    "failed to allocate memory": (
        "ResourceExhaustedError: RESOURCE_EXHAUSTED: failed to allocate memory [Op:Mul]",
        "gpu_exhausted",
    ),
    "dst": (
        "InternalError (see above for traceback): Dst tensor is not initialized.",
        "dataset_on_gpu",
    ),
    "eager const": (
        "InternalError: Failed copying input tensor from /job:localhost/replica:0/task:0/"
        "device:CPU:0 to /job:localhost/replica:0/task:0/device:GPU:0 in order to run _EagerConst: "
        "Dst tensor is not initialized.",
        "dataset_on_gpu",
    ),
    "cudnn": (
        "E tensorflow/stream_executor/cuda/cuda_dnn.cc:455] could not create cudnn handle: "
        "CUDNN_STATUS_ALLOC_FAILED",
        "cuda_library_allocation",
    ),
    "cublas": (
        "E cuda_blas.cc:464] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",
        "cuda_library_allocation",
    ),
    "no algorithm": (
        "NOT_FOUND: No algorithm worked!  Error messages:\n  Profiling failure on CUDNN engine 1: "
        "UNKNOWN: CUDNN_STATUS_ALLOC_FAILED",
        "cuda_library_allocation",
    ),
    "context": (
        "failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to "
        "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: "
        "11554717696",
        "gpu_held_by_other_process",
    ),
    "async": (
        "gpu_async_0 cuMemAllocAsync failed to allocate 4294967296 bytes: CUDA error: out of "
        "memory (CUDA_ERROR_OUT_OF_MEMORY)\n Reported by CUDA: Free memory/Total memory: "
        "310902784/8361017344\nStats:\nLimit: 6241124352\nInUse: 5368709120\n",
        "gpu_exhausted",
    ),
    "metal": (
        "Error: command buffer exited with error status. Insufficient Memory "
        "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "gpu_exhausted",
    ),
    "rocm": ("RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB", "gpu_exhausted"),
    "illegal access": (
        "E cuda_event.cc:29] Error polling for event status: failed to query event: "
        "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
        "not_memory",
    ),
    "too many files": (
        "ResourceExhaustedError: /data/a.tfrecord; Too many open files",
        "not_memory",
    ),
    "xla <= 2.20": (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4000000000 bytes.",
        "xla_exhausted",
    ),
    "xla 2.21": (
        "ResourceExhaustedError: Out of memory while trying to allocate 47.68MiB.",
        "xla_exhausted",
    ),
    "xla main": (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 47.68MiB with allocator "
        "GPU_0_bfc on device 0.",
        "xla_exhausted",
    ),
    "xla remat": (
        "Can't reduce memory use below 2.58GiB (2770000000 bytes) by rematerialization; only "
        "reduced to 31.49GiB (33811139404 bytes)",
        "xla_exhausted",
    ),
    "tpu": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.52G "
        "of 15.48G hbm.",
        "xla_exhausted",
    ),
    "numpy 1.17": (
        "MemoryError: Unable to allocate array with shape (90000, 20000) and data type float64",
        "host_array_too_large",
    ),
    "numpy 2": (
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 4.09 GiB for an array with "
        "shape (16283, 150, 150, 3) and data type float32",
        "host_array_too_large",
    ),
    "bare memory error": ("Traceback (most recent call last):\nMemoryError", "host_exhausted"),
    "bad_alloc": (
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "host_exhausted",
    ),
    "errno 12": ("OSError: [Errno 12] Cannot allocate memory", "host_exhausted"),
    "windows": ("OSError: [WinError 1455] The paging file is too small", "host_exhausted"),
    "warning 1.x": (
        "W allocator.cc:108] Allocation of 367528800 exceeds 10% of system memory.",
        "host_allocation_warning",
    ),
    "warning 2.x": (
        "W cpu_allocator_impl.cc:82] Allocation of 153600000 exceeds 10% of free system memory.",
        "host_allocation_warning",
    ),
    "colab": ("tcmalloc: large alloc 4396410000 bytes == 0x5", "host_allocation_warning"),
    "graphdef": ("ValueError: GraphDef cannot be larger than 2GB.", "tensor_proto_too_large"),
    "tensor proto": (
        "ValueError: Cannot create a tensor proto whose content is larger than 2GB.",
        "tensor_proto_too_large",
    ),
    "protobuf": (
        "Message tensorflow.GraphDef exceeds maximum protobuf size of 2GB: 2294967296",
        "tensor_proto_too_large",
    ),
    "kernel": (
        "[12345.678901] Out of memory: Killed process 4567 (python) total-vm:30000000kB, "
        "anon-rss:16000000kB, file-rss:0kB, shmem-rss:0kB, UID:1000",
        "host_killed",
    ),
    "cgroup": ("Memory cgroup out of memory: Killed process 4567 (python)", "host_killed"),
    "old kernel": (
        "Out of memory: Kill process 12345 (python) score 950 or sacrifice child",
        "host_killed",
    ),
    "shell": ("Epoch 1/5\nKilled", "host_killed"),
    "zsh": ("zsh: killed     python train.py", "host_killed"),
    "docker": ("trainer exited with code 137", "host_killed"),
    "pycharm": (
        "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)",
        "host_killed",
    ),
    "subprocess": ("died with <Signals.SIGKILL: 9>.", "host_killed"),
    "torch worker": ("DataLoader worker (pid 47) is killed by signal: Killed.", "host_killed"),
    "pool": (
        "BrokenProcessPool: A process in the process pool was terminated abruptly while the future "
        "was running or pending.",
        "host_killed",
    ),
    "slurm": (
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=6767023.batch. Some of your "
        "processes may have been killed by the cgroup out-of-memory handler.",
        "host_killed",
    ),
    "old slurm": ("slurmstepd: error: Exceeded job memory limit at some point.", "host_killed"),
    "lsf": ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "host_killed"),
    "pbs": ("=>> PBS: job killed: mem 33554432kb exceeded limit 16777216kb", "host_killed"),
    "kubernetes": ("Last State: Terminated\n  Reason: OOMKilled\n  Exit Code: 137", "host_killed"),
    "colab crash": ("Your session crashed after using all available RAM.", "host_killed"),
    "kaggle": (
        "Your notebook tried to allocate more memory than is available. It has restarted.",
        "host_killed",
    ),
    "jupyter": ("The kernel appears to have died. It will restart automatically.", "host_killed"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_each_message_alone_is_understood(name):
    text, cause = CAUSES[name]
    assert diagnose_text(text).cause == cause


def test_a_torch_failure_is_exhaustion_too():
    text = (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.76 GiB total "
        "capacity; 9.20 GiB already allocated; 1 GiB free)"
    )
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, diagnosis.requested_bytes) == ("gpu_exhausted", 2 * GIB)


@pytest.mark.parametrize(
    ("printed", "dtype", "item"),
    [("uint8", "uint8", 1), ("<U42", "u42", 168), ("object", "object", 8), (">f8", "float64", 8)],
)
def test_numpy_arrays_are_sized_exactly(printed, dtype, item):
    text = f"Unable to allocate 1. TiB for an array with shape (1000, 7) and data type {printed}"
    diagnosis = diagnose_text(text)
    assert (diagnosis.dtype, diagnosis.requested_bytes) == (dtype, 7000 * item)
