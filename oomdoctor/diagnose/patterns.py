"""The messages that are known, by the words they hold.

Each pattern has needles, which are looked for first because that is cheap, and a regular
expression whose named groups become the fields of an `Event`. Every repetition is bounded or runs
over a class that the next token is not in, so that matching takes linear time. The order matters
where two patterns know the same words: the first one that matches wins within a `group`.

Sources: TensorFlow 0.8 to 2.21 and XLA main, NumPy 1.13 to 2.4, Linux, Slurm, LSF, PBS,
Kubernetes, Colab, Kaggle and Jupyter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIZE = r"\d{1,20}(?:\.\d{0,6})?\s?[KMGTPE]?i?B?"
_DEVICE = r"[^\s,]{0,160}?(?P<device>(?:GPU|CPU|TPU):\d{1,3})"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One known message."""

    kind: str
    needles: tuple[str, ...]
    """In lower case; one of them must be in the line."""
    regex: re.Pattern[str]
    unless: tuple[str, ...] = ()
    """In lower case; none of them may be in the line."""


def _p(kind: str, needles: str, regex: str, *, unless: str = "") -> Pattern:
    return Pattern(
        kind,
        tuple(needles.split("|")),
        re.compile(regex, re.IGNORECASE),
        tuple(unless.split("|")) if unless else (),
    )


DEVICE = (
    # 1.x to main: the caller can do without it. Nothing failed.
    _p(
        "bfc_not_failure",
        "this is not a failure|freed_by_count",
        rf"(?:allocator \((?P<allocator>[^()]{{1,80}})\) )?ran out of memory trying to allocate "
        rf"(?P<size>{_SIZE})|this is not a failure",
    ),
    # 0.x: no allocator; 1.4: no rounding; 2.2: "requested by op"; main: "from the lower end".
    _p(
        "bfc_failure",
        "ran out of memory trying to allocate",
        rf"(?:allocator \((?P<allocator>[^()]{{1,80}})\) )?ran out of memory trying to allocate "
        rf"(?P<size>{_SIZE})(?: \(rounded to (?P<n>\d{{1,20}})\))?"
        r"(?: from the \w+ end)?(?:\s?requested by op (?P<op>[^\s\\]{0,300}))?",
        unless="this is not a failure|freed_by_count",
    ),
    # >= 1.5 has type, device and allocator; before, the shape alone; 0.6: `shapedim { size: 64 }`.
    _p(
        "oom_tensor",
        "oom when allocating",
        r"oom when allocating (?:temporary )?tensor (?:with|of) shape ?"
        r"(?:\[(?P<shape>[\d, ]{0,300})\]|(?P<dims>(?:dim \{ ?size: \d{1,12} ?\} ?){1,12}))"
        rf"(?: and type (?P<dtype>\w{{1,20}}))?(?: on {_DEVICE})?"
        r"(?: by allocator (?P<allocator>[\w.:-]{1,80}))?",
    ),
    _p(
        "async_failure",
        "memallocasync",
        r"(?:(?P<allocator>gpu_async_\d+) )?cuMemAllocAsync failed to allocate (?P<n>\d{1,20})",
    ),
    _p(
        "async_free",
        "free memory/total memory",
        r"free memory/total memory: (?P<free>\d{1,20})/(?P<total>\d{1,20})",
    ),
    _p(
        "xla_hbm",
        "in memory space|would exceed memory|that was not possible",
        rf"used (?P<used>{_SIZE}) of (?P<limit>{_SIZE})"
        rf"|would exceed memory \(size=(?P<limit2>\d{{1,20}})\)"
        rf"|attempting to (?:allocate|reserve) (?P<size>{_SIZE})[^\n]{{0,60}}that was not possible",
    ),
    _p(
        "xla_failure",
        "out of memory while trying to allocate|out of memory allocating|out of host memory"
        "|failed to allocate request for",
        rf"(?:out of (?:host )?memory (?:while trying to allocate|allocating)|"
        rf"failed to allocate request for) "
        rf"(?P<size>{_SIZE})(?: \((?P<n>\d{{1,20}})B?\))?"
        r"(?: bytes)?(?: with allocator (?P<allocator>[\w.:-]{1,80}))?"
        r"(?: on device (?:ordinal )?(?P<ordinal>\d{1,3}))?",
    ),
    _p(
        "xla_remat",
        "can't reduce memory use below",
        rf"can't reduce memory use below (?P<limit>{_SIZE})"
        rf"[^\n]{{0,80}}only reduced to (?P<size>{_SIZE})(?: \((?P<n>\d{{1,20}}) bytes\))?",
    ),
    _p("xla_failure", "resource_exhausted: out of memory", r"resource_exhausted: out of memory"),
    _p(
        "torch_failure",
        "cuda out of memory",
        rf"cuda out of memory\. tried to allocate (?P<size>{_SIZE})"
        rf"(?:[^\n]{{0,40}}?; (?P<total>{_SIZE}) total capacity; (?P<used>{_SIZE}) already)?"
        r"|cuda out of memory",
    ),
    _p(
        "device_back_off",
        "from device: cuda_error_out_of_memory|from device: hip|cuda_error_out_of_memory: out of",
        rf"failed to allocate (?P<size>{_SIZE}) \((?P<n>\d{{1,20}}) bytes\) from device",
    ),
    _p(
        "pinned_failure",
        "bytes on host|pinned host memory",
        r"failed to alloc (?P<n>\d{1,20}) bytes on host"
        r"|could not allocate pinned host memory of size: (?P<n2>\d{1,20})",
    ),
    _p(
        "context_failure",
        "cuda_error_out_of_memory|status: out of memory|cudaerrormemoryallocation",
        r"(?:cuDevicePrimaryCtxRetain|cuCtxCreate|cuCtxSetCurrent|cuInit|cudaSetDevice|implicit "
        r"initialization|cudaGetDevice|cuStreamCreate|primary context|cudaMalloc)[^\n]{0,160}"
        r"(?:out_of_memory|out of memory|cudaErrorMemoryAllocation)"
        r"(?:[^\n]{0,40}total memory reported: (?P<total>\d{1,20}))?",
    ),
    _p("cuda_out_of_memory", "cuda_error_out_of_memory", r"cuda_error_out_of_memory"),
    _p(
        "copy_failure",
        "failed copying input tensor",
        r"failed copying input tensor from \S{1,160} to "
        rf"{_DEVICE} in order to run (?P<op>[^\s:]{{1,200}})",
    ),
    _p("dst_failure", "dst tensor is not initialized", r"dst tensor is not initialized"),
    _p(
        "plain_failure",
        "failed to allocate memory",
        r"(?:resource.exhausted|resourceexhausted)[^\n]{0,120}failed to allocate memory"
        r"|^failed to allocate memory",
    ),
)

LIBRARY = (
    _p(
        "library_mismatch",
        "but source was compiled with|matching major version|_mismatch|insufficient driver version"
        "|version mismatch",
        r"cudnn library:? (?:major version )?[\d.]+[^\n]{0,40}but source was compiled with"
        r"|matching major version|CU\w+_STATUS_(?:ARCH|VERSION)_MISMATCH"
        r"|insufficient driver version|cudnn[^\n]{0,60}version mismatch",
        unless="possibly insufficient driver version",
    ),
    _p(
        "library_handle",
        "handle|failed to create cu|could not create cu",
        r"(?:could not|failed to) create (?:cudnn|cublas\w*|cusolver\w*|cusparse\w*|cufft\w*"
        r"|curand\w*|miopen|rocblas\w*)(?: handle| plan| context)?[^\n]{0,60}?"
        r"(?P<name>(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE|CUFFT|CURAND|MIOPEN|ROCBLAS)_\w{1,60})"
        r"|(?:could not|failed to) create (?:cudnn|cublas|cusolver\w*|cusparse|cufft) handle",
    ),
    _p(
        "library_status",
        "_alloc_failed|cublas_status_not_initialized|cudnn_status_not_initialized"
        "|cudnn_status_internal_error|cusolver_status_internal_error",
        r"(?P<name>(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE|CUFFT|CURAND)_(?:STATUS_)?"
        r"(?:ALLOC_FAILED|NOT_INITIALIZED|INTERNAL_ERROR))",
        unless="destroy",
    ),
    _p(
        "library_init",
        "convolution algorithm|dnn implementation|no algorithm worked|launch failed|blas support"
        "|dnn library is not found|no dnn in stream|may be due to oom|failed to initialize cu",
        r"failed to get convolution algorithm|fail to find the dnn implementation"
        r"|no algorithm worked|blas \w{0,24} ?launch failed|without blas support"
        r"|dnn library is not found|no dnn in stream executor|may be due to oom"
        r"|failed to initialize cu(?:dnn|blas)",
    ),
    _p(
        "library_memory",
        "bytes free",
        r"memory usage: (?P<free>\d{1,20}) bytes free, (?P<total>\d{1,20}) bytes total",
    ),
)

CARD = (
    # <= 2.4 says "Created TensorFlow device (…) -> physical GPU (…)"; 1.0 has no size.
    _p(
        "card",
        "-> physical gpu|-> device|-> (device",
        rf"creat(?:ed|ing) (?:tensorflow )?device \(?{_DEVICE}"
        r"(?: with (?P<mb>\d{1,9}) MB memory)?"
        r"\)?:? {0,4}-> (?:physical GPU )?\(?device: \d{1,3}, name: (?P<name>[^,()\n]{1,80})",
    ),
    _p(
        "card_memory",
        "freememory",
        rf"totalmemory: ?(?P<total>{_SIZE}) freememory: ?(?P<free>{_SIZE})",
    ),
    _p(
        "card_memory",
        "total memory:|devicememorysize",
        rf"(?:total memory|devicememorysize): ?(?P<total>{_SIZE})",
    ),
    _p("card_memory", "free memory:", rf"free memory: ?(?P<free>{_SIZE})"),
    _p(
        "card_usage",
        "mib /",
        r"(?P<n>\d{1,7})MiB / {1,6}(?P<totalmib>\d{1,7})MiB",
    ),
)

HOST = (
    # NumPy >= 1.18; before that the size is not printed.
    _p(
        "numpy_failure",
        "unable to allocate",
        rf"unable to allocate (?:(?P<size>{_SIZE}) for an )?array with shape "
        r"\((?P<shape>[\d, ]{0,300})\) and data type (?P<dtype>[^\s'\")]{1,40})"
        rf"|unable to allocate (?P<size2>{_SIZE})",
    ),
    _p(
        "memory_error",
        "memoryerror|outofmemoryerror",
        r"(?:^|[\s>#|:])(?:[a-z_]\w{0,40}\.){0,6}(?:_Array|Arrow|OutOf)?MemoryError(?:: |:?\s*$)",
        unless="except memoryerror|raise memoryerror|except (|cuda",
    ),
    _p(
        "allocation_failure",
        "bad_alloc|bad allocation|cannot allocate memory|can't allocate memory|not enough memory"
        "|paging file is too small|error code 1455|insufficient memory",
        r"std::bad_alloc|bad allocation|cannot allocate memory"
        r"|(?:can't allocate memory|not enough memory): you tried to allocate (?P<n>\d{1,20})"
        r"|not enough memory|paging file is too small|error code 1455|insufficient memory",
    ),
    # 1.x: "of system memory"; the logger prints it five times at most.
    _p(
        "host_warning",
        "% of free system memory|% of system memory",
        r"(?:allocation of|total allocated memory) ?(?P<n>\d{1,20}) ?exceeds \d{1,3}% of",
    ),
    _p("host_warning", "tcmalloc: large alloc", r"tcmalloc: large alloc (?P<n>\d{1,20}) bytes"),
)

END = (
    _p(
        "kernel_kill",
        "killed process|kill process|oom-kill:|invoked oom-killer|oom_reaper",
        r"(?:out of memory: |memory )?kill(?:ed)? process (?P<count>\d{1,10}),? ?"
        r"\(?(?P<name>[^)\s]{1,40})"
        r"(?:[^\n]{0,120}anon-rss:(?P<kib>\d{1,15})kB)?"
        r"|oom-kill:constraint|invoked oom-killer|oom_reaper: reaped",
    ),
    _p(
        "memory_kill",
        "oom-kill|oom_kill|oomkilled|out_of_memory|memory limit|memlimit|memory usage limit"
        "|exceeded limit|low on resource|available ram|more memory than|physical memory"
        "|perhaps out of|out-of-memory handler|memory was exceeded",
        r"oom.kill event|oomkilled|state\W{1,6}out_of_memory"
        r"|exceeded (?:job|step|process)? ?memory limit"
        r"|term_memlimit|lsf memory usage limit|\bv?mem \w{1,20} exceeded limit"
        r"|exceeding memory limits|beyond (?:physical|virtual) memory limits"
        r"|low on resource: memory|using all available ram|used all available ram"
        r"|allocate more memory than is available|sigkill! perhaps out of memory"
        r"|out-of-memory handler|memory limit (?:was )?exceeded|exceeded (?:the|its) memory limit",
    ),
    _p(
        "killed",
        "killed|137|sigkill|signal 9|status -9|code -9",
        r"^[\s#>$]{0,12}(?:\S{1,200}: line \d{1,6}: {0,4})?(?:\[?\d{1,9}\]?[+-]? {1,12})?"
        r"Killed(?::? ?9)?\s*$"
        r"|: line \d{1,6}: {0,4}\d{1,9} Killed\b|^\[\d{1,4}\] ?[+-]? {1,6}\d{0,9} {0,4}Killed\b"
        r"|\bkilled {2,40}\S|^zsh: killed"
        r"|(?:exit(?:ed|s)?|return(?:ed|code)?|terminated|finished|status|code)\b"
        r"[^\n]{0,40}?[ :=(]{1,3}(?:137|-9)\b"
        r"|\bsigkill\b|(?:by|with|on|received|got) signal:? ?9\b",
        unless="oomkilled|sigkill! perhaps",
    ),
    _p(
        "kernel_died",
        "kernel|canceled future for execute_request",
        r"kernel (?:appears to have |has |unexpectedly )?(?:died|crashed)|kernel died|dead kernel"
        r"|your session crashed|canceled future for execute_request",
    ),
    _p("session_crash", "your session crashed", r"your session crashed"),
    _p(
        "stopped",
        "time limit|runlimit|preempt|keyboardinterrupt|walltime",
        r"due to time limit|term_runlimit|due to preemption|\bpreempted\b|keyboardinterrupt"
        r"|walltime \S{0,20} ?exceeded",
    ),
)

OTHER = (
    _p(
        "proto_limit",
        "2gb|2147483647|2gib|protobuf|too big",
        r"tensor proto whose content is larger than 2GB"
        r"(?:\. size of tensor is (?P<n2>\d{1,20}))?|graphdef cannot be larger than 2GB"
        r"|(?:maximum )?protobuf (?:size of|limit of|hard limit of) ?2GB(?:: (?P<n>\d{1,20}))?"
        r"|exceeds? (?:the )?(?:maximum )?(?:protobuf )?(?:size )?(?:limit )?(?:of )?2GB"
        r"|larger than (?:the )?2 ?GB(?: limit)?"
        r"|protocol message was rejected because it was too big"
        r"|message tensorflow\.\w{1,40} exceeds|2147483647 bytes",
    ),
    _p(
        "shuffle_filling",
        "shuffle buffer",
        r"filling up shuffle buffer[^:\n]{0,40}: (?P<filled>\d{1,15}) of (?P<count>\d{1,15})",
    ),
    _p("shuffle_filled", "shuffle buffer filled", r"shuffle buffer filled"),
    _p(
        "disk_full",
        "no space left|disk quota exceeded|errno 28",
        r"no space left on device|disk quota exceeded|errno 28",
    ),
    _p(
        "quota",
        "quota|larger than max|too many|rate limit",
        r"resource.?exhausted[^\n]{0,200}(?:quota|larger than max|too many|rate limit)"
        r"|quota exceeded|too many open files",
    ),
    _p("retracing", "retracing", r"triggered tf\.function retracing"),
    _p(
        "replicas",
        "strategy|replica|nccl|horovod|tower_|all_reduce|allreduce|multi_gpu_model",
        r"MirroredStrategy|replica_[1-9]|\bnccl|horovod|\btower_[1-9]|all_?reduce"
        r"|multi_gpu_model|number of (?:devices|replicas)\b[^\n]{0,20}[2-9]",
    ),
    # JAX builds XLA under external/xla; in TensorFlow it is external/local_xla.
    _p(
        "xla_client",
        "external/xla/|xlaruntimeerror|jaxlib|pjrt_",
        r"external/xla/|xlaruntimeerror|jaxlib|pjrt_",
    ),
    _p("exhausted", "exhausted", r"resource.?exhausted"),
    _p(
        "crash",
        "core dumped|segmentation fault|check failed|aborted|illegal instruction|bus error",
        r"core dumped|segmentation fault|check failed|^\s{0,8}aborted|illegal instruction"
        r"|bus error",
    ),
    _p(
        "exception",
        "error|exception|interrupt",
        r"^[\s#>|]{0,8}(?:[a-z_]\w{0,60}\.){0,8}(?P<name>[A-Z]\w{0,60}(?:Error|Exception|Interrupt))"
        r"(?:\s*$|:)",
        unless="hint: if you want",
    ),
)

OPERATION = (
    _p("node", "{{node", r"\{\{node (?P<op>[^\s}]{1,300})\}\}"),
    _p(
        "detected_node",
        "detected at node",
        r"detected at node '?(?P<op>[^\s']{1,300})'? defined at",
    ),
    _p("node", "node: '", r"^\s{0,8}node: '(?P<op>[^']{1,300})'"),
    _p("node", "[[node", r"\[\[node:? ?(?P<op>[^\s\]={}(]{1,300})"),
    _p("op_tag", "[op:", r"\[op:(?P<op>\w{1,80})\](?: name: (?P<name>\S{1,200}))?"),
)

GROUPS = (DEVICE, LIBRARY, CARD, HOST, END, OTHER, OPERATION)
"""Within a group a line has one meaning, the first; across groups it may have several."""

NEEDLES = tuple(
    (needle, place, pattern)
    for place, group in enumerate(GROUPS)
    for pattern in group
    for needle in pattern.needles
)
"""Every needle with its pattern and the place of its group, in the order of the table."""

ROOTS = (
    "mem", "alloc", "oom", "kill", "error", "exce", "interrupt", "_status_", "_mismatch",
    "exhaust",
    "xla", "pjrt", "jaxlib", "node", "[op:", "kernel", "buffer", "2gb", "2147483647", "2gib", "protobuf",
    "too ", "failure", "fail", "handle", "freed_by", "-> ", "mib /", "bytes free", "blas", "dnn",
    "algorithm", "version", "compiled", "137", "signal 9", "status -9", "code -9", "sigkill",
    "reaper", "limit", "initialized", "copying", "large", "not possible", "exceed", "space left",
    "quota", "errno 28", "retracing", "strategy", "replica", "nccl", "tower_", "reduce",
    "multi_gpu", "dumped", "abort", "illegal", "bus e", "segmentation", "from device", "on host",
    "pinned", "canceled future", "session crash", "preempt", "walltime", "low on resource",
    "available ram", "horovod", "fault", "not create", "perhaps",
)  # fmt: skip
"""Parts of words of which one is in every needle: most lines of a log have none."""
