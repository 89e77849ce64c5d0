"""The facts a rule may read: their names, kinds and meanings, and how to get each one.

A name has two levels, `machine.ram_total_bytes`. A kind says how a value is written and compared:

- `bytes` and `count` are whole numbers, `ratio` any number;
- `version` is a whole number too, major × 10000 + minor × 100 + patch (2.21.0 is 22100);
- `text` is a string, `flag` is true or false.

A fact that is not known is None, which makes a condition unknown rather than false.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from oomdoctor.advise.flatten import values
from oomdoctor.findings import CAUSES
from oomdoctor.recording import GROWTHS, SUSPECTS

__all__ = ["FACTS", "PURPOSES", "FactName", "nearest", "values"]

PURPOSES = ("prototype", "train", "production")
"""What a run is for: a first try, one training on this machine, or a lasting pipeline."""

_RAM = "run this where the training will run, or give --ram SIZE or --machine NAME"
_GPU = "run this where the GPU is, or give --vram SIZE or --machine NAME"
_WHO = "run this where the GPU is, outside a container, so that the driver names its processes"
_DATA = "give a dataset: oomdoctor check PATH"
_BOTH = "give a dataset and a machine: oomdoctor check PATH --ram SIZE --vram SIZE"
_PIPELINE = "hand over the pipeline itself: oomdoctor.check(dataset)"
_MODEL = "give a model: oomdoctor estimate MODEL"
_CARD = (
    "give a model and a GPU, with oomdoctor[xla] installed: oomdoctor estimate MODEL --machine NAME"
)
_BASELINE = "compare with a recorded peak: oomdoctor estimate MODEL --baseline FILE"
_CRASH = "give the log of the run that died: oomdoctor diagnose LOG"
_CODE = "give a script: oomdoctor check train.py"
_PROFILE = "record the run: oomdoctor profile SCRIPT"
_VERSION = "run this in the environment that has it installed"
_PURPOSE = "say what the run is for: --purpose prototype, train or production"


class FactName(NamedTuple):
    """One fact a rule may read."""

    name: str
    kind: str
    """`bytes`, `count`, `ratio`, `text`, `flag` or `version`."""
    meaning: str
    how_to_get: str
    choices: tuple[str, ...] = ()
    """All a text can be, where that is fixed: a comparison with anything else is a mistake."""


_TABLE = (
    FactName("machine.ram_total_bytes", "bytes", "RAM of the machine", _RAM),
    FactName(
        "machine.ram_available_bytes",
        "bytes",
        "RAM that can be taken now, under every limit",
        _RAM,
    ),
    FactName(
        "machine.ram_limit_bytes",
        "bytes",
        "limit lower than the machine's RAM; unknown where there is none",
        _RAM,
    ),
    FactName(
        "machine.ram_limit_source", "text", "where that limit comes from, `cgroup memory.max`", _RAM
    ),
    FactName(
        "machine.ram_usable_bytes",
        "bytes",
        "RAM of the machine, or the limit where it is lower",
        _RAM,
    ),
    FactName("machine.swap_total_bytes", "bytes", "swap space; 0 where there is none", _RAM),
    FactName("machine.cpu_count", "count", "processors", _RAM),
    FactName(
        "machine.gpu_count", "count", "visible GPUs; unknown, never 0, when none was seen", _GPU
    ),
    FactName("machine.gpu_name", "text", "name of the GPU with the least free memory", _GPU),
    FactName("machine.gpu_total_bytes", "bytes", "memory of the smallest visible GPU", _GPU),
    FactName(
        "machine.gpu_free_bytes",
        "bytes",
        "memory nobody holds on the fullest GPU; compare with machine.gpu_usable_bytes instead",
        _GPU,
    ),
    FactName(
        "machine.gpu_usable_bytes",
        "bytes",
        "what TensorFlow can get on that GPU: the free memory less its own reserve",
        _GPU,
    ),
    FactName(
        "machine.gpu_used_bytes", "bytes", "memory in use on that GPU, the driver's included", _GPU
    ),
    FactName(
        "machine.gpu_other_process_bytes",
        "bytes",
        "memory that processes hold on that GPU; at least, where the driver hides some",
        _WHO,
    ),
    FactName("machine.gpu_process_count", "count", "processes that hold memory on that GPU", _WHO),
    FactName(
        "machine.has_tensor_cores",
        "flag",
        "every visible GPU multiplies float16 matrices in hardware (compute capability 7.0 up)",
        _GPU,
    ),
    FactName("data.root", "text", "path of the dataset", _DATA),
    FactName("data.samples", "count", "samples, all splits together", _DATA),
    FactName("data.files", "count", "files", _DATA),
    FactName("data.stored_bytes", "bytes", "bytes on disk", _DATA),
    FactName("data.decoded_bytes", "bytes", "bytes in memory, all samples as loaded", _DATA),
    FactName(
        "data.native_bytes", "bytes", "the same at the samples' own size, before resizing", _DATA
    ),
    FactName(
        "data.keras_loader_bytes",
        "bytes",
        "images as Keras loads them by default, 256×256×3 float32",
        _DATA,
    ),
    FactName("data.sample_bytes", "bytes", "one sample as loaded", _DATA),
    FactName("data.largest_sample_bytes", "bytes", "the largest sample as loaded", _DATA),
    FactName("data.batch_bytes", "bytes", "one batch as loaded", _DATA),
    FactName("data.batch_size", "count", "samples in a batch", _DATA),
    FactName(
        "data.expansion", "ratio", "decoded bytes over stored bytes; 1 for live objects", _DATA
    ),
    FactName("data.dtype", "text", "dtype of the largest group, as loaded", _DATA),
    FactName("data.stored_dtype", "text", "dtype of the largest group, as stored", _DATA),
    FactName("data.format", "text", "format of the largest group, such as `npy`", _DATA),
    FactName(
        "data.kind",
        "text",
        "what a loader makes of the largest group",
        _DATA,
        ("image", "array", "table", "audio", "text", "record"),
    ),
    FactName(
        "data.load",
        "text",
        "loaded whole, streamed, or mixed",
        _DATA,
        ("memory", "stream", "mixed"),
    ),
    FactName("data.is_exact", "flag", "every file was counted, none estimated", _DATA),
    FactName("data.loaded_whole_bytes", "bytes", "groups that are loaded whole, together", _DATA),
    FactName("data.array_bytes", "bytes", "groups of arrays, together", _DATA),
    FactName(
        "data.largest_array_bytes",
        "bytes",
        "the largest group of arrays, as one array; 0 where there are none",
        _DATA,
    ),
    FactName(
        "data.train_path",
        "text",
        "folder to train on: the training split's where there is one, else the dataset's; of an "
        "archive, where it will be unpacked",
        _DATA,
    ),
    FactName(
        "data.validation_path", "text", "folder of the validation split; unknown if none", _DATA
    ),
    FactName(
        "data.file_path",
        "text",
        "file that is trained on, or a pattern that matches many; unknown for live objects",
        _DATA,
    ),
    FactName("data.archive_path", "text", "the .zip or .tar to unpack; unknown if none", _DATA),
    FactName(
        "data.array_path",
        "text",
        "path of the .npy file that is trained on; unknown if none",
        _DATA,
    ),
    FactName(
        "data.labels_path", "text", "path of the .npy file with its labels; unknown if none", _DATA
    ),
    FactName(
        "data.input_key",
        "text",
        "name of the inputs inside their HDF5 or .npz file; unknown if none",
        _DATA,
    ),
    FactName(
        "data.label_key", "text", "name of their labels in the same file; unknown if none", _DATA
    ),
    FactName(
        "data.color_mode",
        "text",
        "the color_mode that Keras's loader needs for images that are not RGB; unknown if they are",
        _DATA,
        ("grayscale", "rgba"),
    ),
    FactName("data.is_flat", "flag", "samples lie in no folders named after classes", _DATA),
    FactName("data.is_one_file", "flag", "the dataset is a single file", _DATA),
    FactName("data.is_pattern", "flag", "data.file_path is a pattern for many files", _DATA),
    FactName("data.is_gzip", "flag", "that file is packed with gzip", _DATA),
    FactName(
        "data.can_memory_map",
        "flag",
        "arrays are loaded whole, and all of those are uncompressed .npy files",
        _DATA,
    ),
    FactName("data.image_height", "count", "rows of the median image, as stored", _DATA),
    FactName("data.image_width", "count", "columns of the median image, as stored", _DATA),
    FactName("data.image_channels", "count", "channels of the median image, as stored", _DATA),
    FactName(
        "data.loader_height",
        "count",
        "rows to resize images to: the model's input, --image-size, or Keras's default of 256",
        _DATA,
    ),
    FactName("data.loader_width", "count", "columns to resize images to, likewise", _DATA),
    FactName("data.loader_sample_bytes", "bytes", "one image at that size, as loaded", _DATA),
    FactName(
        "data.loaded_height",
        "count",
        "rows of an image as loaded: --image-size, or the median's own",
        _DATA,
    ),
    FactName("data.loaded_width", "count", "columns of an image as loaded, likewise", _DATA),
    FactName("data.largest_height", "count", "rows of the largest image, as stored", _DATA),
    FactName("data.largest_width", "count", "columns of the largest image, as stored", _DATA),
    FactName("data.median_sample_bytes", "bytes", "the median sample as loaded", _DATA),
    FactName("data.sample_elements", "count", "numbers in the median sample", _DATA),
    FactName(
        "data.sequence_length", "count", "frames of the longest audio file; unknown if none", _DATA
    ),
    FactName("data.is_ragged", "flag", "samples of one group differ in shape", _DATA),
    FactName(
        "data.replica_remainder",
        "count",
        "samples of the last batch left over when it is split over the replicas",
        _MODEL,
    ),
    FactName(
        "feeding.base_ram_bytes", "bytes", "RAM of TensorFlow itself, part of every way", _BOTH
    ),
    FactName(
        "feeding.chosen_way",
        "text",
        "how the data will be fed: arrays in RAM, arrays copied to the GPU, streamed, or mixed",
        _BOTH,
        ("memory", "device", "stream", "mixed"),
    ),
    FactName("feeding.chosen_ram_bytes", "bytes", "RAM that way needs, for data", _BOTH),
    FactName(
        "feeding.chosen_vram_bytes", "bytes", "GPU memory that way needs, for data; 0 on CPU", _BOTH
    ),
    FactName("feeding.memory_ram_bytes", "bytes", "RAM for arrays given to `fit` on CPU", _BOTH),
    FactName("feeding.device_ram_bytes", "bytes", "RAM for arrays that `fit` copies to GPU", _BOTH),
    FactName("feeding.device_vram_bytes", "bytes", "GPU memory for that copy", _BOTH),
    FactName("feeding.stream_ram_bytes", "bytes", "RAM that a streamed pipeline needs", _BOTH),
    FactName("feeding.stream_vram_bytes", "bytes", "GPU memory for streamed batches", _BOTH),
    FactName("pipeline.shuffle_bytes", "bytes", "what shuffle buffers hold", _PIPELINE),
    FactName("pipeline.shuffle_elements", "count", "elements in the largest of them", _PIPELINE),
    FactName("pipeline.shuffle_after_batch", "flag", "a shuffle buffer holds batches", _PIPELINE),
    FactName("pipeline.cache_in_memory", "flag", "a cache keeps its elements in RAM", _PIPELINE),
    FactName("pipeline.cache_bytes", "bytes", "what caches in RAM hold after one pass", _PIPELINE),
    FactName("pipeline.cache_after_batch", "flag", "a cache in RAM holds batches", _PIPELINE),
    FactName("pipeline.prefetch_bytes", "bytes", "what prefetch buffers hold", _PIPELINE),
    FactName("pipeline.prefetch_batches", "count", "elements in the largest of them", _PIPELINE),
    FactName(
        "pipeline.from_tensors_bytes", "bytes", "arrays embedded by from_tensor_slices", _PIPELINE
    ),
    FactName("pipeline.total_bytes", "bytes", "all stages together", _PIPELINE),
    FactName("model.name", "text", "name of the model", _MODEL),
    FactName("model.weights_bytes", "bytes", "all weights", _MODEL),
    FactName("model.trainable_bytes", "bytes", "the weights that are trained", _MODEL),
    FactName("model.optimizer", "text", "name of the optimizer, such as `adam`", _MODEL),
    FactName("model.optimizer_bytes", "bytes", "what the optimizer keeps", _MODEL),
    FactName("model.precision", "text", "dtype policy, such as `mixed_float16`", _MODEL),
    FactName("model.input_height", "count", "rows of an input image", _MODEL),
    FactName("model.input_width", "count", "columns of an input image", _MODEL),
    FactName("model.has_batch_norm", "flag", "a layer normalises over the batch", _MODEL),
    FactName("model.replicas", "count", "copies of the model, one per GPU", _MODEL),
    FactName("model.batch_size", "count", "the global batch, over all replicas", _MODEL),
    FactName("step.batch_size", "count", "batch the estimate is for", _MODEL),
    FactName(
        "step.program",
        "text",
        "`xla` where it was compiled for the card, else `executor`",
        _MODEL,
        ("xla", "executor"),
    ),
    FactName("step.peak_bytes", "bytes", "peak of one training step, likely", _MODEL),
    FactName("step.low_bytes", "bytes", "the same, low end", _MODEL),
    FactName("step.high_bytes", "bytes", "the same, high end", _MODEL),
    FactName(
        "step.other_peak_bytes",
        "bytes",
        "peak of the same step as the program that `step.program` is not",
        _CARD,
    ),
    FactName("step.other_low_bytes", "bytes", "the same, low end", _CARD),
    FactName("step.other_high_bytes", "bytes", "the same, high end", _CARD),
    FactName(
        "step.fixed_bytes",
        "bytes",
        "weights, gradients and optimizer: what no batch size changes",
        _MODEL,
    ),
    FactName("step.activation_bytes", "bytes", "what the layers keep for the way back", _MODEL),
    FactName("step.largest_tensor_bytes", "bytes", "the largest single tensor", _MODEL),
    FactName("step.per_sample_bytes", "bytes", "what one more sample in the batch costs", _MODEL),
    FactName("sharding.card", "text", "the largest card of the catalogue", _MODEL),
    FactName("sharding.card_bytes", "bytes", "what TensorFlow gets of that card", _MODEL),
    FactName("sharding.whole_bytes", "bytes", "the rest of the peak, which is not split", _MODEL),
    FactName("sharding.cards", "count", "such cards that hold the step if it is split", _MODEL),
    FactName("sharding.each_bytes", "bytes", "what each of them holds", _MODEL),
    FactName("baseline.recorded_bytes", "bytes", "peak that the baseline has", _BASELINE),
    FactName("baseline.growth_bytes", "bytes", "how much higher the peak is now", _BASELINE),
    FactName("baseline.allowed_bytes", "bytes", "how much higher it may be", _BASELINE),
    FactName("crash.cause", "text", "why the run died", _CRASH, CAUSES),
    FactName(
        "crash.is_recorded", "flag", "the run was recorded while it ran, not only logged", _CRASH
    ),
    FactName(
        "crash.is_before_training",
        "flag",
        "weights or optimizer state were being created or loaded, before the first batch",
        _CRASH,
    ),
    FactName("crash.is_training", "flag", "the log shows steps or epochs before the end", _CRASH),
    FactName("crash.epochs", "count", "the highest epoch the log shows; 0 without one", _CRASH),
    FactName("crash.is_on_gpu", "flag", "the log shows a GPU", _CRASH),
    FactName(
        "crash.is_optimizer_state",
        "flag",
        "the failed tensor belongs to the optimizer's state or its update",
        _CRASH,
    ),
    FactName("crash.has_shuffle_buffer", "flag", "the log shows a shuffle buffer", _CRASH),
    FactName("crash.has_cache", "flag", "the log shows a dataset that is cached", _CRASH),
    FactName(
        "crash.may_be_held",
        "flag",
        "another process holding the GPU is also possible",
        _CRASH,
    ),
    FactName("crash.requested_bytes", "bytes", "the allocation that failed", _CRASH),
    FactName("crash.limit_bytes", "bytes", "what the allocator could use at most", _CRASH),
    FactName("crash.in_use_bytes", "bytes", "what it had given out", _CRASH),
    FactName("crash.device", "text", "device that ran out, such as `GPU:0`", _CRASH),
    FactName("crash.op", "text", "operation that asked", _CRASH),
    FactName("crash.layer", "text", "Keras layer it belongs to", _CRASH),
    FactName("crash.batch_dimension", "count", "first dimension of the failed tensor", _CRASH),
    FactName("crash.rank", "count", "number of dimensions of the failed tensor", _CRASH),
    FactName(
        "crash.op_kind",
        "text",
        "the last part of the operation's name, without its number, such as `MatMul`",
        _CRASH,
    ),
    FactName(
        "crash.is_weight_gradient",
        "flag",
        "the failed tensor is known to be a weight, its gradient or the optimizer's copy, which no "
        "batch size changes",
        _CRASH,
    ),
    FactName("code.check", "text", "check of scripts that found something; unknown if none", _CODE),
    FactName("code.text", "text", "the code it found, on one line; unknown if none", _CODE),
    FactName("code.name", "text", "variable, file or method it is about; unknown if none", _CODE),
    FactName(
        "code.count", "count", "number in the code: a batch or a buffer; unknown if none", _CODE
    ),
    FactName(
        "code.parts", "count", "the other number: replicas, parts, a batch; unknown if none", _CODE
    ),
    FactName(
        "code.detail", "text", "a further word of the check, see the rule; unknown if none", _CODE
    ),
    FactName(
        "code.held_bytes", "bytes", "what it takes in memory; unknown if none is known", _CODE
    ),
    FactName("code.size", "text", "how that is computed, as a sentence; unknown if none", _CODE),
    FactName("profile.growth", "text", "what grew in the recording", _PROFILE, GROWTHS),
    FactName("profile.grown_bytes", "bytes", "by how much", _PROFILE),
    FactName("profile.step_growth_bytes", "bytes", "the same in each step, of a leak", _PROFILE),
    FactName("profile.epoch_growth_bytes", "bytes", "the same in each epoch, of a leak", _PROFILE),
    FactName(
        "profile.suspect", "text", "what is kept, as seen from inside the run", _PROFILE, SUSPECTS
    ),
    FactName("profile.suspect_name", "text", "its name, such as `losses (list)`", _PROFILE),
    FactName(
        "profile.stage", "text", "the pipeline's call that filled, `shuffle(100000)`", _PROFILE
    ),
    FactName("profile.peak_bytes", "bytes", "the most RAM the run held", _PROFILE),
    FactName("profile.limit_bytes", "bytes", "the lowest limit on its RAM", _PROFILE),
    FactName("versions.tensorflow", "version", "installed TensorFlow", _VERSION),
    FactName("versions.keras", "version", "installed Keras", _VERSION),
    FactName("run.purpose", "text", "what the run is for", _PURPOSE, PURPOSES),
)

FACTS: dict[str, FactName] = {fact.name: fact for fact in _TABLE}
"""Every fact by name, in the order a reader meets them."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean x?` for the nearest known word, or nothing.

    Example:
        >>> nearest("data.decoded_byte", FACTS)
        ' Did you mean data.decoded_bytes?'
    """
    close = difflib.get_close_matches(word[:100], list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]}?" if close else ""
