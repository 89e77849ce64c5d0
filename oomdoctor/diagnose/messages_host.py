"""What Python, NumPy, the kernel, schedulers and notebooks say about memory and about endings."""

from __future__ import annotations

from oomdoctor.diagnose.pattern import SIZE, known

HOST = (
    # NumPy >= 1.18; before that the size is not printed.
    known(
        "numpy_failure",
        "unable to allocate",
        rf"unable to allocate (?:(?P<size>{SIZE}) for an )?array with shape ?"
        r"\((?P<shape>[\d, ]{0,300})\)(?: and (?:data type|dtype) (?P<dtype>[^\s'\")]{1,40}))?"
        rf"|unable to allocate (?P<size2>{SIZE})",
    ),
    known(
        "numpy_failure",
        "array is too big|maximum allowed size|maximum allowed dimension",
        r"array is too big; `arr\.size|maximum allowed (?:size|dimension) exceeded",
    ),
    known(
        "allocation_failure",
        "bad_alloc|bad allocation|cannot allocate memory|can't allocate memory|not enough memory"
        "|paging file is too small|error code 1455|insufficient memory|cannot allocate vector"
        "|llvm error: out of memory|failed to allocate|malloc of size|realloc of size"
        "|c error: out of memory|could not allocate memory|unable to allocate output",
        r"std::bad_alloc|bad allocation|cannot allocate memory"
        r"|(?:can't allocate memory|not enough memory): you tried to allocate (?P<n>\d{1,20})"
        r"|not enough memory|paging file is too small|error code 1455"
        r"|insufficient memory(?:\) failed to allocate (?P<n2>\d{1,20}) bytes)?"
        rf"|cannot allocate vector of size (?P<size>{SIZE})|llvm error: out of memory"
        r"|failed to allocate \d{1,20} bytes in function|c error: out of memory"
        r"|(?:m|re)alloc of size (?P<size2>\d{1,20}) failed|could not allocate memory"
        r"|unable to allocate output",
        unless="callbackerroroutofmemory",
    ),
    known(
        "memory_error",
        "memoryerror|outofmemoryerror",
        r"(?:^|[\s>#|:])(?:[a-z_]\w{0,40}\.){0,6}(?:_Array|Arrow|OutOf)?MemoryError(?:: |:?\s*$)",
        unless="except memoryerror|raise memoryerror|except (|cuda",
    ),
    # 1.x: "of system memory"; the logger prints it five times at most.
    known(
        "host_warning",
        "% of free system memory|% of system memory",
        r"(?:allocation of|total allocated memory) ?(?P<n>\d{1,20}) ?exceeds \d{1,3}% of",
    ),
    known("host_warning", "tcmalloc: large alloc", r"tcmalloc: large alloc (?P<n>\d{1,20}) bytes"),
)

END = (
    known(
        "kernel_kill",
        "killed process|kill process|oom-kill:|invoked oom-killer|oom_reaper",
        r"(?:out of memory: |memory )?kill(?:ed)? process (?P<count>\d{1,10}),? ?"
        r"\(?(?P<name>[^)\s]{1,40})"
        r"(?:[^\n]{0,120}anon-rss:(?P<kib>\d{1,15})kB)?"
        r"|oom-kill:constraint|invoked oom-killer|oom_reaper: reaped",
    ),
    known(
        "memory_kill",
        "oom-kill|oom_kill|oomkilled|out_of_memory|memory limit|memlimit|memory usage"
        "|exceeded limit|low on resource|available ram|more memory than|physical memory"
        "|perhaps out of|out-of-memory handler|memory was exceeded| out_of_me+|memory pressure"
        "|due to memory used|earlyoom|h_vmem|exceeding memory",
        r"oom.kill event|oomkilled(?!\W{1,6}false)|state\W{1,6}out_of_memory| OUT_OF_ME\+"
        r"|(?<!\w)OUT_OF_MEMORY[|\s]{1,20}\d{1,3}:\d"
        r"|exceeded (?:job|step|process)? ?memory limit"
        r"|term_memlimit|lsf memory usage limit|\bv?mem \w{1,20} exceeded limit"
        r"|exceeding memory limits|beyond (?:physical|virtual) memory limits"
        r"|low on resource: memory|using all available ram|used all available ram"
        r"|allocate more memory than is available|sigkill! perhaps out of memory"
        r"|out-of-memory handler|memory limit (?:was )?exceeded|exceeded (?:the|its) memory limit"
        r"|over memory limit of|exceeds the memory usage threshold|killed due to memory pressure"
        r"|killed \S{1,200} due to memory used|earlyoom\S{0,20}: sending SIG"
        r"|exceeds? (?:job )?(?:hard )?limit \"?h_vmem",
    ),
    known(
        "killed",
        "killed|terminated abruptly|excessive memory usage|137|code 247"
        "|sigkill|signal 9|status -9|code -9",
        r"^[\s#>$]{0,12}(?:\S{1,200}: line \d{1,6}: {0,4})?(?:\[?\d{1,9}\]?[+-]? {1,12})?"
        r"Killed(?::? ?9)?\s*$"
        r"|: line \d{1,6}: {0,4}\d{1,9} Killed\b|^\[\d{1,4}\] ?[+-]? {1,6}\d{0,9} {0,4}Killed\b"
        r"|\bkilled {2,40}\S|^zsh: killed"
        r"|(?:exit(?:ed|s)?|return(?:ed|code)?|terminated|finished|status|code)\b"
        r"[^\n]{0,40}?[ :=(]{1,3}(?:137|247|-9)\b"
        r"|killed by signal|terminated abruptly while|excessive memory usage causing"
        r"|\bsigkill\b|(?:by|with|on|received|got) signal:? ?9\b",
        unless="oomkilled|sigkill! perhaps",
    ),
    known(
        "kernel_died",
        "kernel|canceled future for execute_request",
        r"kernel (?:appears to have |has |unexpectedly )?(?:died|crashed)|kernel died|dead kernel"
        r"|your session crashed|canceled future for execute_request"
        r"|restarter: restarting kernel|root:kernel \S{1,60} restarted",
    ),
    known("session_crash", "your session crashed", r"your session crashed"),
    known(
        "stopped",
        "time limit|runlimit|preempt|keyboardinterrupt|walltime",
        r"due to time limit|term_runlimit|due to preemption|\bpreempted\b|keyboardinterrupt"
        r"|walltime \S{0,20} ?exceeded",
    ),
)

LIMITS = (
    # What a job had in use, and what it was allowed to have: kernel, Slurm, YARN, Ray, PBS,
    # HTCondor, SGE, systemd, LSF.
    known(
        "memory_limit",
        "memory: usage",
        rf"\bmemory: usage (?P<used>{SIZE}), limit (?P<limit>{SIZE})",
    ),
    known(
        "memory_limit",
        "exceeded memory limit (",
        r"exceeded memory limit \((?P<usedkib>\d{1,18}) > (?P<limitkib>\d{1,18})\)",
    ),
    known(
        "memory_limit",
        "physical memory used|virtual memory used",
        rf"(?P<used>{SIZE}) of (?P<limit>{SIZE}) (?:physical|virtual) memory used",
    ),
    known(
        "memory_limit",
        "usage threshold",
        rf"was (?P<used>{SIZE}) / (?P<limit>{SIZE}) \([\d.]{{1,12}}\)",
    ),
    known(
        "memory_limit",
        "exceeded limit",
        rf"\bmem (?P<used>{SIZE}) exceeded limit (?P<limit>{SIZE})",
    ),
    known(
        "memory_limit",
        "over memory limit of",
        r"over memory limit of (?P<limitmib>\d{1,9}) megabytes\.[^\n]{1,30} usage: "
        r"(?P<usedmib>\d{1,9}) megabytes",
    ),
    known("memory_limit", "> limit:", rf"\((?P<used>{SIZE})\d{{0,6}} > limit:(?P<limit>{SIZE})"),
    known(
        "memory_limit",
        "due to memory used",
        r"due to memory used \((?P<used>\d{1,18})\) / total \((?P<limit>\d{1,18})\)",
    ),
    known("memory_limit", "max memory", rf"^\s{{0,20}}max memory ?: {{1,60}}(?P<used>{SIZE})"),
    known(
        "memory_limit",
        "total requested memory",
        rf"^\s{{0,20}}total requested memory ?: {{1,60}}(?P<limit>{SIZE})",
    ),
    # `kubectl describe` lists limits and requests, each with a line for memory.
    known("pod_limits", "limits:", r"^\s{0,40}limits:\s{0,8}$"),
    known("pod_requests", "requests:", r"^\s{0,40}requests:\s{0,8}$"),
    known("pod_memory", "memory:", rf"^\s{{0,40}}memory: {{1,20}}(?P<size>{SIZE})\s{{0,8}}$"),
    known(
        "memory_limit", "was using", rf"was using (?P<used>{SIZE}), (?:which exceeds|request is)"
    ),
)

OTHER = (
    known(
        "proto_limit",
        "2gb: |serialized size",
        r"(?:size|limit) of 2GB: (?P<n>\d{1,20})"
        r"|serialized size \((?P<n2>\d{1,20}) ?bytes\)[^\n]{0,60}larger than the limit",
    ),
    known(
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
    known(
        "shuffle_filling",
        "shuffle buffer",
        r"filling up shuffle buffer[^:\n]{0,40}: (?P<filled>\d{1,15}) of (?P<count>\d{1,15})",
    ),
    known("shuffle_filled", "shuffle buffer filled", r"shuffle buffer filled"),
    known(
        "cache",
        "being cached|cachedataset|cache_dataset|memorycache",
        r"dataset being cached|\bCacheDataset|cache_dataset_ops|\bMemoryCache",
    ),
    known(
        "disk_full",
        "no space left|disk quota exceeded|errno 28|low on resource: ephemeral",
        r"no space left on device|disk quota exceeded|errno 28|low on resource: ephemeral.storage",
    ),
    # Where a file cannot be written, old versions name the file and nothing else.
    known(
        "file_failure",
        "exhausted",
        r"resource.?exhausted(?:error)?(?: \(see above for traceback\))?: ?(?:[a-z]:)?"
        r"[^\s:;]{1,400}(?:\.tempstate\d|\.data-\d{5}-of-\d{5}|\.ckpt\b|\.tfrecords?\b)",
        unless="no space left|disk quota exceeded",
    ),
    known(
        "quota",
        "quota|larger than max|too many|rate limit",
        r"resource.?exhausted[^\n]{0,200}(?:quota|larger than max|too many|rate limit)"
        r"|quota exceeded|too many open files|received message larger than max",
    ),
    known("retracing", "retracing", r"triggered tf\.function retracing"),
    known(
        "replicas",
        "strategy|replica|nccl|horovod|tower_|all_reduce|allreduce|multi_gpu_model",
        r"MirroredStrategy|replica_[1-9]|\bnccl|horovod|\btower_[1-9]|all_?reduce"
        r"|multi_gpu_model|number of (?:devices|replicas)\b[^\n]{0,20}[2-9]",
    ),
    # JAX builds XLA under external/xla; in TensorFlow it is external/local_xla.
    known(
        "xla_client",
        "external/xla/|xlaruntimeerror|jaxlib|pjrt_",
        r"external/xla/|xlaruntimeerror|jaxlib|pjrt_",
    ),
    known("exhausted", "exhausted", r"resource.?exhausted"),
    known(
        "driver_fault",
        "does not match dso|version is insufficient|library version mismatch",
        r"kernel version \S{1,40} does not match DSO|CUDA driver version is insufficient"
        r"|driver/library version mismatch",
    ),
    known(
        "cuda_fault",
        "illegal memory access|cuda_error_illegal|cuda_error_launch|cuda_error_misaligned",
        r"illegal memory access|CUDA_ERROR_(?:ILLEGAL|LAUNCH|MISALIGNED)\w{0,30}",
    ),
    known(
        "crash",
        "core dumped|segmentation fault|check failed|aborted|illegal instruction|bus error",
        r"core dumped|segmentation fault|check failed|^\s{0,8}aborted|illegal instruction"
        r"|bus error",
    ),
    known(
        "exception",
        "error|exception|interrupt",
        r"^[\s#>|]{0,8}(?:[a-z_]\w{0,60}\.){0,8}(?P<name>[A-Z]\w{0,60}(?:Error|Exception|Interrupt))"
        r"(?:\s*$|:)",
        unless="hint: if you want",
    ),
)

OPERATION = (
    known("node", "{{node", r"\{\{node (?P<op>[^\s}]{1,300})\}\}"),
    known(
        "detected_node",
        "detected at node",
        r"detected at node '?(?P<op>[^\s']{1,300})'? defined at",
    ),
    known("node", "node: '", r"^\s{0,8}node: '(?P<op>[^']{1,300})'"),
    known("node", "[[node", r"\[\[node:? ?(?P<op>[^\s\]={}(]{1,300})"),
    known("op_tag", "[op:", r"\[op:(?P<op>\w{1,80})\](?: name: (?P<name>\S{1,200}))?"),
)
