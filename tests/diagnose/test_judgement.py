"""The same words mean different things: what surrounds them decides."""

import pytest

from oomdoctor.diagnose.run import diagnose_text, verdict_of

CARD = (
    "2019-05-09 11:45:36.2: I gpu_device.cc:1115] Created TensorFlow device (/job:localhost/"
    "replica:0/task:0/device:GPU:0 with {mb} MB memory) -> physical GPU (device: 0, name: {name}, "
    "pci bus id: 0000:01:00.0, compute capability: 7.5)\n"
)
OOM = (
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor "
    "with shape[32,64,250,250] and type float on /job:localhost/replica:0/task:0/device:GPU:{gpu} "
    "by allocator GPU_{gpu}_bfc\n"
)
REFUSED = "failed to allocate {g}G ({n} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY\n"
NO_ALGORITHM = "UnknownError: Failed to get convolution algorithm."
EPOCHS = "".join(f"Epoch {n}/5\n10/10 [====] - 1s 9ms/step - loss: 0.5\n" for n in range(1, 6))


def cause(text, **known):
    return diagnose_text(text, **known).cause


def test_a_request_that_an_op_can_do_without_is_no_failure():
    line = (
        "W bfc.cc:243] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB "
        "with freed_by_count=0. The caller indicates that this is not a failure, but may mean that "
        "there could be performance gains if more memory were available.\n"
    )
    diagnosis = diagnose_text(line * 3 + EPOCHS)
    assert (diagnosis.cause, verdict_of(diagnosis)) == ("no_failure", "fits")
    assert "not a failure" in diagnosis.evidence[0][1]


def test_a_failure_after_harmless_refusals_is_still_a_failure():
    line = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1GiB with freed_by_count=0."
    assert cause(f"{line}\n{OOM.format(gpu=0)}") == "gpu_exhausted"


def test_a_refusal_at_start_up_on_a_free_card_is_harmless():
    text = "totalMemory: 16.00GiB freeMemory: 15.84GiB\n" + REFUSED.format(g=15, n=16104454912)
    assert cause(text + EPOCHS) == "no_failure"


def test_a_refusal_at_start_up_on_a_full_card_is_someone_else():
    text = "totalMemory: 16.00GiB freeMemory: 1.20GiB\n" + REFUSED.format(g=1, n=1104454912)
    assert cause(text) == "gpu_held_by_other_process"


def test_refusals_far_below_the_planned_pool_are_someone_else():
    small = "failed to allocate 256.00M (268435456 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY\n"
    assert cause(CARD.format(mb=10000, name="Unknown Card") + small) == "gpu_held_by_other_process"


def test_a_limit_far_below_the_card_is_someone_else_or_a_cap():
    text = CARD.format(mb=688, name="Tesla T4") + OOM.format(gpu=0)
    diagnosis = diagnose_text(text)
    assert diagnosis.cause == "gpu_held_by_other_process"
    assert "or a memory limit was set" in diagnosis.summary


def test_the_same_failure_with_the_whole_card_is_exhaustion():
    diagnosis = diagnose_text(CARD.format(mb=14000, name="Tesla T4") + OOM.format(gpu=0))
    assert diagnosis.cause == "gpu_exhausted"
    assert diagnosis.limit_bytes == 14000 * 2**20


def test_a_part_of_a_card_is_not_taken_for_the_whole():
    name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert cause(CARD.format(mb=4000, name=name) + OOM.format(gpu=0)) == "gpu_exhausted"


def test_several_cards_that_fail_are_told_as_such():
    assert cause(OOM.format(gpu=0) + OOM.format(gpu=1)) == "multi_gpu_exhausted"


def test_one_card_that_fails_in_a_mirrored_run_is_too():
    text = "INFO:tensorflow:Using MirroredStrategy with devices ('/gpu:0', '/gpu:1')\n"
    assert cause(text + OOM.format(gpu=0)) == "multi_gpu_exhausted"


def test_a_library_that_does_not_start_on_an_empty_card_is_not_about_memory():
    text = "totalMemory: 23.62GiB freeMemory: 21.93GiB\n" + NO_ALGORITHM
    assert cause(text) == "not_memory"


def test_the_same_on_a_small_card_is_about_memory():
    text = "totalMemory: 6.00GiB freeMemory: 4.93GiB\n" + NO_ALGORITHM
    assert cause(text) == "cuda_library_allocation"


def test_a_library_of_the_wrong_version_is_not_about_memory():
    text = (
        "E cuda_dnn.cc:363] Loaded runtime CuDNN library: 7.0.5 but source was compiled with: "
        "7.2.1.\nUnknownError: Failed to get convolution algorithm."
    )
    assert cause(text) == "not_memory"


def test_a_strategy_over_a_single_card_is_not_several():
    text = "INFO:tensorflow:Using MirroredStrategy with devices ('/device:GPU:0',)\n"
    assert cause(text + OOM.format(gpu=0)) == "gpu_exhausted"


def test_a_small_array_that_fails_is_the_victim():
    text = "Unable to allocate 3 MiB for an array with shape (400, 400, 3) and data type float64"
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, diagnosis.requested_bytes) == ("host_exhausted", 3840000)
    assert "something else" in diagnosis.summary


def test_a_table_of_nvidia_smi_tells_the_size_of_the_card():
    text = "| N/A   36C    P0    41W / 300W |  12799MiB / 16280MiB |      0%      Default |\n"
    limit = "Limit: 2000000000\nInUse: 1999999000\n"
    assert cause(text + limit + OOM.format(gpu=0)) == "gpu_held_by_other_process"


def test_a_full_disk_is_not_about_memory():
    text = "RESOURCE_EXHAUSTED:  cache_0.data; No space left on device\nHint: ... when OOM happens"
    assert cause(text) == "not_memory"


def test_a_quota_is_not_about_memory():
    assert cause("grpc RESOURCE_EXHAUSTED: Quota exceeded for requests") == "not_memory"


def test_a_job_that_ran_out_of_time_is_not_about_memory():
    text = (
        "JOB 12345 CANCELLED AT 2023-01-01 DUE TO TIME LIMIT\nslurm: line 11: 333 Killed   python"
    )
    assert cause(text) == "not_memory"


@pytest.mark.parametrize("end", ["", "Shuffle buffer filled.\n"])
def test_a_kill_while_a_buffer_is_filled_is_the_buffer(end):
    text = f"Filling up shuffle buffer (this may take a while): 577 of 10000\n{end}Killed\n"
    diagnosis = diagnose_text(text)
    assert diagnosis.cause == "pipeline_buffer"
    assert diagnosis.is_fatal
    assert diagnosis.alternatives[0].cause == "host_killed"


def test_a_kill_in_training_is_not_the_buffer_that_was_filled_before():
    text = "Filling up shuffle buffer (this may take a while): 9 of 10\n" + EPOCHS + "Killed\n"
    assert cause(text) == "host_killed"


def test_a_slow_buffer_in_a_run_that_went_on_is_not_fatal():
    text = "Filling up shuffle buffer (this may take a while): 410 of 1024\n" * 2 + EPOCHS
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, verdict_of(diagnosis)) == ("pipeline_buffer", "fits")


def test_warnings_before_a_kill_are_evidence_of_it():
    text = "Allocation of 9000000000 exceeds 10% of free system memory.\nKilled\n"
    diagnosis = diagnose_text(text)
    assert diagnosis.cause == "host_killed"
    assert any("exceeds 10%" in line for _, line in diagnosis.evidence)


def test_figures_that_climb_are_a_leak_and_the_last_is_in_use():
    text = "".join(f"Epoch {n}: RSS {500 + 120 * n} MB\n" for n in range(9))
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, diagnosis.in_use_bytes) == ("leak", 1460 * 2**20)


@pytest.mark.parametrize(
    "figures",
    [
        [500, 2100, 2105, 2106, 2106, 2107, 2106],
        [2000, 2010, 1990, 2005, 2001, 2003],
        [3000, 2500, 2000, 1500, 1000],
        [900, 1800],
    ],
)
def test_a_warm_up_and_steady_figures_are_no_leak(figures):
    assert cause("".join(f"memory used: {mb} MB\n" for mb in figures)) == "no_failure"


def test_counters_beside_the_word_memory_are_no_figures():
    text = "".join(f"memory -> step {n}000 Max 3884{n}00 Min 3873720\n" for n in range(1, 9))
    assert cause(text) == "no_failure"


def test_growth_before_a_kill_is_the_leak():
    text = "".join(f"mem usage: {n}.5 GB\n" for n in range(1, 9)) + "Killed\n"
    diagnosis = diagnose_text(text)
    assert diagnosis.cause == "leak"
    assert diagnosis.alternatives[0].cause == "host_killed"


@pytest.mark.parametrize(
    "text",
    [
        EPOCHS,
        "GPU memory growth is on\nallow_growth=True\n" + EPOCHS,
        "Out of 1000 samples, memory profiling took 137 ms\n" + EPOCHS,
        "Model fits in memory. Total memory: 12 GiB\n" + EPOCHS,
        "Killed 3 zombie processes of yesterday; exit code 0\n" + EPOCHS,
        "step 137 loss: 0.3\n",
        "",
    ],
)
def test_healthy_logs_that_speak_of_memory_are_healthy(text):
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, verdict_of(diagnosis)) == ("no_failure", "fits")


def test_an_error_of_another_kind_is_named():
    diagnosis = diagnose_text("Traceback (most recent call last):\nTypeError: not all arguments")
    assert diagnosis.cause == "not_memory"
    assert "TypeError" in diagnosis.summary


def test_whole_arrays_on_the_card_are_an_alternative():
    text = (
        "I bfc.cc:1] 2 Chunks of size 13200000000 totalling 24.59GiB\nLimit: 40231108608\n"
        "InUse: 39851412480\n" + OOM.format(gpu=0)
    )
    assert "dataset_on_gpu" in [other.cause for other in diagnose_text(text).alternatives]


def test_a_failure_on_the_cpu_is_told_as_system_memory():
    text = OOM.format(gpu=0).replace("GPU:0", "CPU:0").replace("GPU_0_bfc", "cpu")
    diagnosis = diagnose_text(text)
    assert diagnosis.device == "CPU:0"
    assert diagnosis.summary.startswith("System RAM")


WRAPPED = (
    ("Allocator (GPU_0_bfc) ran out of memory trying to allocate 2GiB. The caller", "indicates"),
    ("Allocator (GPU_0_bfc) ran out of memory trying to allocate 2GiB.", "The caller indicates"),
    ("Allocator (GPU_0_bfc) ran out of memory trying to", "allocate 2GiB. The caller indicates"),
)


@pytest.mark.parametrize(("first", "second"), WRAPPED)
def test_a_harmless_refusal_that_was_wrapped_is_still_harmless(first, second):
    text = f"{first}\n   {second} that this is not a failure, but may mean\n   more.\n"
    assert cause(text) == "no_failure"


def test_a_failure_stays_one_beside_a_harmless_refusal_far_away():
    failure = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2GiB (rounded to 2)\n"
    text = failure + "more\n" * 5 + "The caller indicates that this is not a failure.\n"
    assert cause(text) == "gpu_exhausted"


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Out of memory while trying to\n    allocate 4.00GiB.\n",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate\n4.00GiB.\n",
    ],
)
def test_the_size_is_read_from_the_second_half_of_a_wrapped_message(text):
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, diagnosis.requested_bytes) == ("xla_exhausted", 2**32)


@pytest.mark.parametrize(
    "text",
    [
        "ResourceExhaustedError: ./run/model-9.tempstate123\n",
        "W op_kernel.cc:975] Resource exhausted:/home/me/a.emb-35.data-00000-of-00001\n",
        "ResourceExhaustedError (see above for traceback): C:\\run\\model.ckpt-82\n",
    ],
)
def test_an_exhausted_file_is_not_about_memory(text):
    assert cause(text) == "not_memory"


def test_a_doubt_about_the_driver_outweighs_a_library_that_did_not_start():
    text = "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
    doubt = "cuda_dnn.cc:360] Possibly insufficient driver version: 390.77.0\n"
    assert cause(text) == "cuda_library_allocation"
    diagnosis = diagnose_text(text + doubt)
    assert diagnosis.cause == "not_memory"
    assert [other.cause for other in diagnosis.alternatives] == ["cuda_library_allocation"]


def test_a_card_that_refused_outweighs_the_doubt_about_the_driver():
    text = REFUSED.format(g=1, n=1104454912) + (
        "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
        "Possibly insufficient driver version: 390.77.0\n"
    )
    assert cause(text) == "cuda_library_allocation"


def test_a_kernel_that_restarts_after_large_allocations_was_killed():
    restarted = "INFO | KernelRestarter: restarting kernel (1/5), keep random ports\n"
    large = "WARNING | tcmalloc: large alloc 3011936256 bytes == 0x5bbf0000 @\n"
    assert cause(large + restarted) == cause(restarted + large) == "host_killed"


@pytest.mark.parametrize(
    "text", ["LLVM ERROR: out of memory\nAborted\n", "Error: cannot allocate vector of size 2.0 Gb"]
)
def test_compilers_and_r_run_out_of_system_memory_too(text):
    assert cause(text) == "host_exhausted"


def printed(figures):
    return "".join(f"Memory used: {figure} MB\n" for figure in figures)


def test_a_long_steady_climb_is_a_leak_though_it_is_not_high_yet():
    assert cause(printed(range(800, 1000, 20))) == "leak"
    assert cause(printed([800, 830, 860, 890])) == "no_failure"


def test_figures_that_settle_are_a_warm_up():
    assert cause(printed([140, 175, 190, 207, 223, 238] + [239] * 12)) == "no_failure"


def test_what_is_in_use_is_unknown_where_a_dump_was_cut_off():
    text = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.50MiB (rounded to 4718592)\n"
        "I bfc_allocator.cc:1066] InUse at 703b12d00 of size 256 next 275\n"
    )
    assert diagnose_text(text).in_use_bytes is None


def test_a_driver_that_does_not_fit_is_named():
    text = "kernel version 384.130.0 does not match DSO version 375.66.0 -- cannot find devices\n"
    assert diagnose_text(text).summary.startswith("Not a memory problem: the GPU driver")


def test_half_a_message_at_the_end_of_a_log_is_one_too():
    assert cause("Allocator (GPU_0_bfc) ran out of memory trying to allocate 2GiB\n") == (
        "gpu_exhausted"
    )
    assert cause("RESOURCE_EXHAUSTED: Out of memory while trying to") == "xla_exhausted"


def test_a_warning_in_a_wrapped_comment_is_read():
    text = "# W cpu.cc:81] Allocation of 1207959552\n#     exceeds 10% of free system memory.\n"
    diagnosis = diagnose_text(text)
    assert diagnosis.cause == "host_allocation_warning"
    assert diagnosis.requested_bytes == 1207959552


def test_the_shape_is_read_where_markdown_has_escaped_it():
    text = "OOM when allocating tensor with shape\\[8192,80,512\\] and type float\n"
    assert diagnose_text(text).shape == (8192, 80, 512)


def test_a_recent_driver_is_no_reason_for_a_library_that_did_not_start():
    text = (
        "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
        "Possibly insufficient driver version: {version}\n"
        "OP_REQUIRES failed: UNIMPLEMENTED: DNN library is not found.\n"
    )
    assert cause(text.format(version="515.86.1")) == "cuda_library_allocation"
    assert cause(text.format(version="384.69.0")) == "not_memory"


def test_a_library_that_fails_at_its_work_had_its_memory():
    failed = "failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\n"
    launch = "InternalError: Blas GEMM launch failed : a.shape=(138, 20), b.shape=(20, 32)\n"
    assert cause(launch) == "cuda_library_allocation"
    assert cause(failed + launch) == "not_memory"


def test_a_table_of_jobs_tells_of_memory():
    text = "JobID  State ExitCode\n12345  cpu  1 OUT_OF_ME+    0:125\n"
    assert cause(text) == "host_killed"


@pytest.mark.parametrize(
    "text",
    [
        "The node was low on resource: ephemeral-storage. Container a was using 21Gi\n",
        'StatusCode.RESOURCE_EXHAUSTED\n details = "Received message larger than max (9 vs. 4)"\n',
    ],
)
def test_storage_and_messages_that_are_too_large_are_not_about_memory(text):
    assert cause(text) == "not_memory"


def test_what_xla_foresaw_is_no_failure_in_a_run_that_went_on():
    warning = (
        "Can't reduce memory use below 2.08GiB (9 bytes) by rematerialization; only reduced to "
        "7.68GiB"
    )
    assert cause(warning) == "xla_exhausted"
    assert cause(f"{warning}\n{EPOCHS}") == "no_failure"


def test_figures_behind_the_number_of_an_epoch_are_compared():
    figures = enumerate((612.1, 688.4, 760.2, 841.9, 915.3), 1)
    text = "".join(f"Memory usage after epoch {n}: {figure} MB\n" for n, figure in figures)
    assert cause(text) == "leak"


def test_the_chunks_of_a_dump_that_was_cut_off_hold_nothing_worth_telling():
    text = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.50MiB (rounded to 4718592)\n"
        "I bfc_allocator.cc:1066] InUse at 703b12d00 of size 256 next 275\n"
    )
    assert diagnose_text(text).holders == ()
