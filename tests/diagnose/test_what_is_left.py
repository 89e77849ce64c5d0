"""Logs that were cut, that print figures and no failure, or whose failure is a later one."""

import pytest

from oomdoctor.diagnose.layers import layer_of
from oomdoctor.diagnose.run import diagnose_text

MIB = 2**20
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
STATS = "Stats: \nLimit:   {limit}\nInUse:   {used}\nMaxInUse:   {used}\nNumAllocs:   831\n"
FILLING = (
    "I shuffle_dataset_op.cc:390] Filling up shuffle buffer (this may take a while): 6 of 99\n"
)


def test_a_dump_whose_failure_was_cut_off_is_a_failure():
    diagnosis = diagnose_text(STATS.format(limit=6_000_000_000, used=5_900_000_000))

    assert diagnosis.cause == "gpu_exhausted"
    assert (diagnosis.limit_bytes, diagnosis.in_use_bytes) == (6_000_000_000, 5_900_000_000)


@pytest.mark.parametrize("line", ["Rate Limit: 100\n", "NumAllocs: 17\n", "Limits: none\n"])
def test_a_word_of_another_program_is_not_a_dump(line):
    assert diagnose_text(line).cause == "no_failure"


def test_a_pool_that_is_smaller_than_any_card_is_what_others_left():
    assert diagnose_text(STATS.format(limit=57622528, used=46643200)).cause == (
        "gpu_held_by_other_process"
    )


def test_holes_are_seen_in_the_chunks_where_no_figure_tells_of_them():
    chunks = [
        f"I bfc_allocator.cc:1066] {kind} at 7f{n:02x}{at} of size {size} next {n}"
        for n in range(10)
        for kind, at, size in (
            ("InUse", "00000000", 300_000_000),
            ("Free ", "20000000", 200_000_000),
        )
    ]
    text = "\n".join(
        [
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 512.00MiB (rounded to "
            "536870912)requested by op model/conv/Relu",
            *chunks,
            f"OOM when allocating tensor with shape[32,64,256,256] and type float on {GPU} by "
            "allocator GPU_0_bfc",
        ]
    )
    diagnosis = diagnose_text(text)

    assert diagnosis.cause == "gpu_fragmented"
    assert "191 MiB" in diagnosis.summary


def test_holes_are_seen_in_the_map_of_memory_where_the_card_is_known():
    bar = "*" * 20 + "_" * 12 + "*" * 20 + "_" * 13 + "*" * 20 + "_" * 15
    text = (
        f"Created device {GPU} with 8192 MB memory:  -> device: 0, name: Some Card, pci bus id: 0\n"
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB (rounded to "
        f"1610612736)requested by op x/y/Relu\nW bfc_allocator.cc:474] {bar}\n"
        f"OOM when allocating tensor with shape[32,96,512,256] and type float on {GPU}\n"
    )
    assert diagnose_text(text).cause == "gpu_fragmented"


def test_the_largest_of_xlas_buffers_gives_shape_and_layer_and_its_compiler_the_limit():
    text = (
        "W hlo_rematerialization.cc:3021] Can't reduce memory use below 4.00GiB (4294967296 bytes) "
        "by rematerialization; only reduced to 9.00GiB (9663676416 bytes), down from 9.10GiB\n"
        "Out of memory while trying to allocate 9663676416 bytes.\n"
        "BufferAssignment OOM Debugging.\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 3.40GiB\n"
        '\t\tOperator: op_type="Conv2D" op_name="model/conv2d_19/Conv2D" source_line=1177\n'
        "\t\tXLA Label: fusion\n\t\tShape: f32[1200,476,1600]\n\t\t=====\n"
        "\tBuffer 2:\n\t\tSize: 1.00GiB\n\t\tShape: f32[2,3]\n"
    )
    diagnosis = diagnose_text(text)

    assert diagnosis.cause == "xla_exhausted"
    assert diagnosis.requested_bytes == 9663676416
    assert (diagnosis.shape, diagnosis.dtype) == ((1200, 476, 1600), "float32")
    assert diagnosis.limit_bytes == 4 * 2**30
    assert diagnosis.layer == "conv2d_19"
    assert diagnosis.batch_size is None, "the buffer's first dimension need not be the batch"


@pytest.mark.parametrize(
    "failure",
    [
        f"OOM when allocating tensor with shape[1024,1024,3] and type float on {CPU}",
        "E cuda_driver.cc:1629] failed to alloc 8589934592 bytes on host: CUDA_ERROR_OUT_OF_MEMORY",
    ],
)
def test_a_buffer_that_was_filled_before_is_behind_a_failure_on_the_host(failure):
    diagnosis = diagnose_text(FILLING + failure)
    assert (diagnosis.cause, diagnosis.is_fatal) == ("pipeline_buffer", True)


def test_a_cache_is_behind_a_failure_on_the_host():
    text = (
        f"OOM when allocating tensor with shape[256,256,3] and type float on {CPU}\n"
        "\t [[{{node MemoryCacheImpl}}]] [Op:IteratorGetNext]\n"
    )
    assert diagnose_text(text).cause == "pipeline_buffer"


def test_a_full_gpu_is_not_put_down_to_a_shuffle_buffer_in_ram():
    failure = f"OOM when allocating tensor with shape[64,1024,1024,3] and type float on {GPU}"
    assert diagnose_text(FILLING + failure).cause == "gpu_exhausted"


WHOLE = (
    "ResourceExhaustedError: OOM when allocating tensor with shape[{shape}] and type float on {on}"
)


def test_thousands_of_images_in_one_tensor_are_a_dataset():
    text = WHOLE.format(shape="54000,128,128,3", on=GPU)
    assert diagnose_text(text).cause == "dataset_on_gpu"


@pytest.mark.parametrize("shape", ["256,128,128,3", "54000,128,128,64", "54000,4096"])
def test_what_a_step_may_ask_for_is_not(shape):
    assert diagnose_text(WHOLE.format(shape=shape, on=GPU)).cause == "gpu_exhausted"


def test_weights_that_are_loaded_are_not_a_dataset():
    text = (
        '  File "/x/site-packages/keras/backend.py", line 4302, in batch_set_value\n'
        "    x.assign(np.asarray(value, dtype=dtype_numpy(x)))\n"
        "InternalError: Failed copying input tensor from CPU:0 to "
        f"{GPU} in order to run _EagerConst: Dst tensor is not initialized.\n"
    )
    diagnosis = diagnose_text(text)
    assert (diagnosis.cause, diagnosis.stage) == ("gpu_exhausted", "weights")


def test_a_notebook_that_ends_in_the_optimizer_is_told_by_its_functions():
    text = (
        "~/env/site-packages/tensorflow/python/keras/optimizer_v2/adam.py in "
        "_resource_apply_sparse(self, grad, var, indices, apply_state)\n"
        "    224       v_sqrt = math_ops.sqrt(v_t)\n--> 226           var, coefficients\n"
        "ResourceExhaustedError: OOM when allocating tensor with shape[501153,768] and type float "
        f"on {GPU} by allocator GPU_0_bfc [Op:Mul]\n"
    )
    diagnosis = diagnose_text(text)
    assert "optimizer_state" in diagnosis.signs
    assert diagnosis.source_line is None, "the number of the line is not printed"


def series(line, figures):
    return "".join(line.format(n=n, v=v) + "\n" for n, v in enumerate(figures, 1))


RISING = (1200, 1650, 2100, 2540, 3010, 3480, 3950)


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {n}/50\n100/100 [====] - 3s - loss: 0.5\nMemory usage: {v} MB",
        "epoch {n}: loss=0.4 rss={v}MB",
        "[epoch {n}] RAM used: {v}.5 MiB",
        "Memory after epoch {n}: {v} MB",
        "Epoch {n}: VmRSS: {v}000 kB",
        "pmem(rss={v}000000, vms=9900000000, shared=1)",
        "Epoch {n}/10 loss 0.3 CPU Mem: {v}MB GPU Mem: 1200MB",
        "{n} memory_info: {{'current': {v}000000, 'peak': 9900000000}}",
    ],
)
def test_growth_in_a_run_that_has_not_died_is_a_leak(line):
    assert diagnose_text(series(line, RISING)).cause == "leak"


def test_memory_that_is_free_and_shrinks_to_the_end_is_a_leak():
    text = series("Epoch {n} available memory: {v} MB", (58000, 56900, 55800, 54800, 53700, 52500))
    diagnosis = diagnose_text(text)

    assert diagnosis.cause == "leak"
    assert diagnosis.in_use_bytes is None, "what is free is not what is in use"


@pytest.mark.parametrize(
    "figures",
    [
        (1200, 2500, 2510, 2512, 2509, 2513, 2511),
        (790, 5970, 7112, 7787, 7827, 6785, 5971, 6615, 7151, 6679),
        (1200, 1900, 1250, 1890, 1210, 1930, 1220, 1900),
    ],
)
def test_a_warm_up_or_a_sawtooth_is_none(figures):
    assert diagnose_text(series("Epoch {n} memory used {v} MB", figures)).cause == "no_failure"


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("Conv2D", None),
        ("model/conv2d_19/Conv2D", "conv2d_19"),
        ("gradient_tape/model_1/block_3/Conv2D_2/Conv2DBackpropInput", "block_3"),
        ("vgg_16/fc6/weights/Initializer/random_uniform/RandomUniform", "fc6"),
        ("model/up_sampling2d_2/resize/ResizeNearestNeighbor", "up_sampling2d_2"),
        ("gradients/model/Encoder/Dense1/MatMul_grad/MatMul", "Dense1"),
        ("functional_1/Encoder/Relu", "Encoder"),
        ("training_10/Adam/mul_23", None),
        ("Adam/update_fc6/weights/ApplyAdam", "fc6"),
        ("dense_1/kernel/Momentum/Initializer/zeros", "dense_1"),
        (
            "StatefulPartitionedCall/model/memory/while/body/_30/model/memory/while/cell/MatMul",
            "memory",
        ),
        ("while/body/_30/model/conv2d_7/Conv2D", "conv2d_7"),
        ("model/dropout_2/dropout/Mul", "dropout_2"),
        ("_EagerConst", None),
        (None, None),
    ],
)
def test_the_layer_is_the_users_and_never_the_type_of_an_op(op, layer):
    assert layer_of(op) == layer
