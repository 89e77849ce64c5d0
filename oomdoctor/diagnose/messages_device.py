"""What TensorFlow, XLA and CUDA say about the memory of a device."""

from __future__ import annotations

from oomdoctor.diagnose.pattern import DEVICE, SIZE, known

ALLOCATORS = (
    # 1.x to main: the caller can do without it. Nothing failed.
    known(
        "bfc_not_failure",
        "this is not a failure|freed_by_count|ran out of memory trying to allocate",
        rf"(?:allocator \((?P<allocator>[^()]{{1,80}})\) )?ran out of memory trying to allocate "
        rf"(?P<size>{SIZE})[^\n]{{0,30}}?(?:the caller|freed_by_count)|this is not a failure",
    ),
    # 0.x: no allocator; 1.4: no rounding; 2.2: "requested by op"; main: "from the lower end".
    known(
        "bfc_failure",
        "ran out of memory trying to allocate",
        rf"(?:allocator \((?P<allocator>[^()]{{1,80}})\) )?ran out of memory trying to allocate "
        rf"(?P<size>{SIZE})(?: \(rounded to (?P<n>\d{{1,20}})\))?"
        r"(?: from the \w+ end)?(?:\s?requested by op (?P<op>[^\s\\]{0,300}))?",
        unless="this is not a failure|freed_by_count|the caller",
    ),
    # >= 1.5 has type, device and allocator; before, the shape alone; 0.6: `shapedim { size: 64 }`.
    known(
        "oom_tensor",
        "oom when allocating",
        r"oom when allocating (?:temporary )?tensor (?:with|of) shape ?"
        r"(?:\\?\[(?P<shape>[\d, ]{0,300})\\?\]|(?P<dims>(?:dim \{ ?size: \d{1,12} ?\} ?){1,12}))"
        rf"(?: and type (?P<dtype>\w{{1,20}}))?(?: on {DEVICE})?"
        r"(?: by allocator (?P<allocator>[\w.:-]{1,80}))?",
    ),
    known(
        "async_failure",
        "memallocasync",
        r"(?:(?P<allocator>gpu_async_\d+) )?cuMemAllocAsync failed to allocate (?P<n>\d{1,20})",
    ),
    known(
        "async_free",
        "free memory/total memory",
        r"free memory/total memory: (?P<free>\d{1,20})/(?P<total>\d{1,20})",
    ),
    known(
        "xla_hbm",
        "in memory space|would exceed memory|that was not possible",
        rf"used (?P<used>{SIZE}) of (?P<limit>{SIZE})"
        rf"|would exceed memory \(size=(?P<limit2>\d{{1,20}})\)"
        rf"|attempting to (?:allocate|reserve) (?P<size>{SIZE})[^\n]{{0,60}}that was not possible",
    ),
    known(
        "xla_failure",
        "out of memory while trying to allocate|out of memory allocating|out of host memory"
        "|failed to allocate request for",
        rf"(?:out of (?:host )?memory (?:while trying to allocate|allocating)|"
        rf"failed to allocate request for) "
        rf"(?P<size>{SIZE})(?: \((?P<n>\d{{1,20}})B?\))?"
        r"(?: bytes)?(?: with allocator (?P<allocator>[\w.:-]{1,80}))?"
        r"(?: on device (?:ordinal )?(?P<ordinal>\d{1,3}))?",
    ),
    known(
        "xla_remat",
        "can't reduce memory use below",
        rf"can't reduce memory use below -?(?P<limit>{SIZE})"
        r"(?: \(-?(?P<limitn>\d{1,20}) bytes\))?"
        rf"(?:[^\n]{{0,80}}only reduced to (?P<size>{SIZE})(?: \((?P<n>\d{{1,20}}) bytes\))?)?",
    ),
    known("xla_failure", "resource_exhausted: out of memory", r"resource_exhausted: out of memory"),
    known(
        "torch_failure",
        "cuda out of memory|hip out of memory|mps backend out of memory|callbackerroroutofmemory",
        rf"cuda out of memory\. tried to allocate (?P<size>{SIZE})"
        rf"(?:[^\n]{{0,40}}?; (?P<total>{SIZE}) total capacity; (?P<used>{SIZE}) already)?"
        r"|(?:cuda|hip|mps backend) out of memory|kIOGPUCommandBufferCallbackErrorOutOfMemory",
    ),
    known(
        "device_back_off",
        "from device: cuda_error_out_of_memory|from device: hip|cuda_error_out_of_memory: out of",
        rf"failed to allocate (?P<size>{SIZE}) \((?P<n>\d{{1,20}}) bytes\) from device",
    ),
    known(
        "pinned_failure",
        "bytes on host|pinned host memory",
        r"failed to alloc (?P<n>\d{1,20}) bytes on host"
        r"|could not allocate pinned host memory of size: (?P<n2>\d{1,20})",
    ),
    known(
        "context_failure",
        "cuda_error_out_of_memory|status: out of memory|cudaerrormemoryallocation",
        r"(?:cuDevicePrimaryCtxRetain|cuCtxCreate|cuCtxSetCurrent|cuInit|cudaSetDevice|implicit "
        r"initialization|cudaGetDevice|cuStreamCreate|primary context|cudaMalloc)[^\n]{0,160}"
        r"(?:out_of_memory|out of memory|cudaErrorMemoryAllocation)"
        r"(?:[^\n]{0,40}total memory reported: (?P<total>\d{1,20}))?",
    ),
    known("cuda_out_of_memory", "cuda_error_out_of_memory", r"cuda_error_out_of_memory"),
    known(
        "copy_failure",
        "failed copying input tensor",
        r"failed copying input tensor from \S{1,160} to "
        rf"{DEVICE} in order to run (?P<op>[^\s:]{{1,200}})",
    ),
    # What XLA held at its peak, and what `report_tensor_allocations_upon_oom` lists.
    known("buffer_size", "size: ", rf"^\s{{0,40}}size: (?P<size>{SIZE})\s*$"),
    known(
        "buffer_shape",
        "shape: ",
        r"^\s{0,40}(?:entry parameter sub)?shape: (?P<dtype>\w{2,8})\[(?P<shape>[\d,]{0,200})\]",
    ),
    known(
        "buffer_op",
        "operator: ",
        r'^\s{0,40}operator: (?:op_type="\w{1,80}" )?op_name="(?P<op>[^"\s]{1,400})',
    ),
    # A constant of a 1.x graph prints its value, shortened, and its shape.
    known(
        "const_shape",
        "value=tensor<",
        r"value=Tensor<type: (?P<dtype>\w{1,20}) shape: \[(?P<shape>[\d, ]{1,300})\]",
    ),
    known("usage", "b from ", rf"^\s{{1,8}}(?P<size>{SIZE}) from (?P<op>[^\s]{{1,200}})\s*$"),
    known("dst_failure", "dst tensor is not initialized", r"dst tensor is not initialized"),
    known(
        "plain_failure",
        "failed to allocate memory",
        r"(?:resource.exhausted|resourceexhausted)[^\n]{0,120}failed to allocate memory"
        r"|^failed to allocate memory",
    ),
)

LIBRARY = (
    known(
        "library_mismatch",
        "but source was compiled with|matching major version|_mismatch|insufficient driver version"
        "|version mismatch",
        r"cudnn library:? (?:major version )?[\d.]+[^\n]{0,40}but source was compiled with"
        r"|matching major version|CU\w+_STATUS_(?:ARCH|VERSION)_MISMATCH"
        r"|insufficient driver version|cudnn[^\n]{0,60}version mismatch",
        unless="possibly insufficient driver version",
    ),
    # Printed with CUDNN_STATUS_NOT_INITIALIZED whatever the reason is; mostly it is the driver.
    known(
        "driver_doubt",
        "possibly insufficient driver version",
        r"possibly insufficient driver version:? ?(?P<count>\d{1,4})?",
    ),
    # The library had started, so it had its memory: mostly it does not know so new a card.
    known("library_fault", "cublas_status_exec", r"CUBLAS_STATUS_EXECUTION_FAILED"),
    known(
        "library_handle",
        "handle|failed to create cu|could not create cu",
        r"(?:could not|failed to) create (?:cudnn|cublas\w*|cusolver\w*|cusparse\w*|cufft\w*"
        r"|curand\w*|miopen|rocblas\w*)(?: handle| plan| context)?[^\n]{0,60}?"
        r"(?P<name>(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE|CUFFT|CURAND|MIOPEN|ROCBLAS)_\w{1,60})"
        r"|(?:could not|failed to) create (?:cudnn|cublas|cusolver\w*|cusparse|cufft) handle",
    ),
    known(
        "library_status",
        "_alloc_failed|cublas_status_not_initialized|cudnn_status_not_initialized"
        "|cudnn_status_internal_error|cusolver_status_internal_error|cudnn_status_success (",
        r"(?P<name>(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE|CUFFT|CURAND)_(?:STATUS_)?"
        r"(?:ALLOC_FAILED|NOT_INITIALIZED|INTERNAL_ERROR))|CUDNN_STATUS_SUCCESS \([124] vs",
        unless="destroy",
    ),
    known(
        "library_init",
        "convolution algorithm|dnn implementation|no algorithm worked|launch failed|blas support"
        "|dnn library is not found|no dnn in stream|may be due to oom|failed to initialize cu"
        "|cusolverdn call failed|set cudnn stream",
        r"failed to get convolution algorithm|fail to find the dnn implementation"
        r"|no algorithm worked|blas \w{0,24} ?launch failed|without blas support"
        r"|dnn library is not found|no dnn in stream executor|may be due to oom"
        r"|failed to initialize cu(?:dnn|blas|solver)|cusolverdn call failed"
        r"|failed to set cudnn stream",
    ),
    known(
        "library_memory",
        "bytes free",
        r"memory usage: (?P<free>\d{1,20}) bytes free, (?P<total>\d{1,20}) bytes total",
    ),
)

CARD = (
    # <= 2.4 says "Created TensorFlow device (…) -> physical GPU (…)"; 1.0 has no size.
    known(
        "card",
        "-> physical gpu|-> device|-> (device",
        rf"creat(?:ed|ing) (?:tensorflow )?device \(?{DEVICE}"
        r"(?: with (?P<mb>\d{1,9}) MB memory)?"
        r"\)?:? {0,4}-> (?:physical GPU )?\(?device: \d{1,3}, name: (?P<name>[^,()\n]{1,80})",
    ),
    known(
        "card_memory",
        "freememory",
        rf"totalmemory: ?(?P<total>{SIZE}) freememory: ?(?P<free>{SIZE})",
    ),
    known(
        "card_memory",
        "total memory:|devicememorysize",
        rf"(?:total memory|devicememorysize): ?(?P<total>{SIZE})",
    ),
    known("card_memory", "free memory:", rf"free memory: ?(?P<free>{SIZE})"),
    known(
        "card_usage",
        "mib /",
        r"(?P<n>\d{1,7})MiB / {1,6}(?P<totalmib>\d{1,7})MiB",
    ),
)
