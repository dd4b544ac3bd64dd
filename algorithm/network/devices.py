"""The device of the networks, its settings during inference, and its failures."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import torch

from contract.errors import Finding, HecktorError
from contract.processes import count_usable_cpus

# The platform's T4 has 16 GB, of which 15 GiB can be used; the last GiB is a reserve for the driver and fragmentation.
GPU_MEMORY_LIMIT_BYTES: Final = 14 * 2**30
# Messages of torch 2.10 (CUDA 12.8, cuDNN 9.19) and 2.13 about too little memory, in this order: from the CUDA runtime
# and driver; from torch if no algorithm of cuDNN has room for its workspace, by heuristics (`cudnn.benchmark = False`)
# or after all have been tried; from cuDNN 9; from cuBLAS or an earlier cuDNN.
_NO_MEMORY: Final = (
    "out of memory",
    "GET was unable to find an engine",
    "FIND was unable to find an engine",
    "ALLOCATION_FAILED",
    "ALLOC_FAILED",
)
# cuDNN also gives this message if its workspace did not fit.
_NOT_SUPPORTED: Final = "CUDNN_STATUS_NOT_SUPPORTED"
_FAILURES: Final = ("CUDA", "cuDNN", "CUBLAS", "DefaultCPUAllocator", *_NO_MEMORY[1:3])
# Functions that restore the settings when the last open block of `use_inference_settings` ends.
_IN_FORCE: Final[list[Callable[[], None]]] = []
_SETTINGS: Final = threading.Lock()
_blocks = 0


@contextmanager
def use_inference_settings(device: torch.device, *, limited: bool = False) -> Iterator[None]:
    """Set torch's threads and algorithms for inference; with `limited`, use no more GPU memory than a T4 has.

    Torch uses as many threads as this process may use CPUs, unless `OMP_NUM_THREADS` sets their number, and only cuDNN
    algorithms whose results are reproducible. Blocks may overlap in several threads: the first block makes the
    settings, and the last one to end restores the earlier ones.
    """
    global _blocks  # noqa: PLW0603  torch's settings belong to the process, too
    with _SETTINGS:
        _blocks += 1
        if _blocks == 1:
            with suppress(RuntimeError):  # a failed GPU also fails the first network, which reports it
                _IN_FORCE.extend(_set_for_inference(device, limited))
    try:
        yield
    finally:
        with _SETTINGS:
            _blocks -= 1
            with suppress(RuntimeError):  # the GPU is lost
                while not _blocks and _IN_FORCE:
                    _IN_FORCE.pop()()


def _set_for_inference(device: torch.device, limited: bool) -> Iterator[Callable[[], None]]:
    """Make each setting, and then yield the function that restores it."""
    if "OMP_NUM_THREADS" not in os.environ:
        threads = torch.get_num_threads()
        torch.set_num_threads(min(threads, count_usable_cpus()))
        yield lambda: torch.set_num_threads(threads)
    if device.type != "cuda":
        return
    cudnn = torch.backends.cudnn
    benchmark, deterministic = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    yield lambda: _set_cudnn(benchmark, deterministic)
    if limited:
        share = torch.cuda.get_per_process_memory_fraction(device)
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(share, GPU_MEMORY_LIMIT_BYTES / total), device)
        yield lambda: torch.cuda.set_per_process_memory_fraction(share, device)


def _set_cudnn(benchmark: bool, deterministic: bool) -> None:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = benchmark, deterministic


def is_device_failure(problem: BaseException) -> bool:
    """Return whether an error means that a device ran out of memory or was lost, rather than a bug."""
    if isinstance(problem, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(problem, RuntimeError) and any(word in str(problem) for word in _FAILURES)


def is_out_of_memory(problem: BaseException, earlier_retries: int = 0) -> bool:
    """Return whether an error means that a device ran out of memory, even if only for the workspace of a convolution.

    `earlier_retries` is the result of `count_alloc_retries` at the start of the work that failed.
    """
    if not is_device_failure(problem):
        return False
    message = str(problem)
    return any(word in message for word in _NO_MEMORY) or (
        _NOT_SUPPORTED in message and count_alloc_retries() > earlier_retries
    )


def count_alloc_retries() -> int:
    """Return how often this process emptied torch's cache for an allocation on the GPU or failed to allocate."""
    return int(torch.cuda.memory_stats().get("num_alloc_retries", 0)) if torch.cuda.is_initialized() else 0


def first_line(problem: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class if the message is empty."""
    return (str(problem) or type(problem).__name__).splitlines()[0]


def find_device(name: str) -> torch.device:
    """Return the device called `cpu`, `cuda` (the first GPU) or `auto` (a usable GPU if there is one, or else the CPU).

    Raises:
        HecktorError: `cuda` was requested, but there is no usable GPU.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise HecktorError("device cuda", "no usable CUDA device", "one (or --device auto or cpu)")
    # Some of torch's CUDA functions need the device's index.
    return torch.device("cuda", 0) if available and name != "cpu" else torch.device("cpu")


def find_unexpected_cpu(name: str, device: torch.device) -> tuple[Finding, ...]:
    """Return a finding if `auto` chose the CPU although torch was built for CUDA; otherwise an empty tuple."""
    if name != "auto" or device.type != "cpu" or torch.version.cuda is None:
        return ()
    actual = f"no CUDA device that torch {torch.__version__} can use"
    return (Finding("device auto", actual, "a GPU", "the CPU is used"),)
