"""Choose devices for the network and its accumulators, with fallback devices and memory limits."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Final

import torch

from contract.errors import HecktorError
from contract.processes import usable_cpus

LOGGER = logging.getLogger("hecktor")
GIB: Final = 2**30
# A T4 has 16 GB, of which 15 GiB can be used; the driver and fragmentation take the rest of the difference.
GPU_MEMORY_LIMIT_BYTES: Final = 14 * GIB
# Larger sums of a pass stay in RAM, so that the network's own memory always fits on the card.
LARGEST_SUM_ON_GPU_BYTES: Final = 4 * GIB
# cuDNN has no algorithm whose workspace fits the memory that is left.
_NO_ENGINE: Final = "FIND was unable to find an engine"
_FAILURES: Final = ("CUDA", "cuDNN", "CUBLAS", "DefaultCPUAllocator", _NO_ENGINE)


@dataclass(frozen=True)
class Backend:
    """The network runs on `device`; the sums of a pass are on `sums`."""

    device: torch.device
    sums: torch.device

    def __str__(self) -> str:
        """Name for the log."""
        if self.device.type != "cuda":
            return f"{self.device.type} ({'bfloat16' if cpu_has_bfloat16() else 'float32'})"
        return f"{torch.cuda.get_device_name(self.device)} (float16, sums on {self.sums.type})"


def backends(device: torch.device, sum_bytes: int) -> tuple[Backend, ...]:
    """The best backend and its fallbacks, in order: the GPU, the GPU with sums in RAM, the CPU.

    `sum_bytes` is the size of the images and of the sums of one pass over the whole grid.
    """
    cpu = torch.device("cpu")
    if device.type == "cpu":
        return (Backend(cpu, cpu),)
    spared = (Backend(device, cpu), Backend(cpu, cpu))
    return spared if sum_bytes > LARGEST_SUM_ON_GPU_BYTES else (Backend(device, device), *spared)


def prepared_device(name: str) -> torch.device:
    """The device called `name` (`auto`, `cpu`, `cuda`), with threads, memory and algorithms as inference uses them.

    Torch gets as many threads as this process may use CPUs, unless `OMP_NUM_THREADS` sets their number.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cpus()))
    device = device_named(name)
    prepare_gpu(device)
    return device


def prepare_gpu(device: torch.device) -> None:
    """Limit this process's memory on the card and make results reproducible; no effect on a CPU."""
    if device.type != "cuda":
        return
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, GPU_MEMORY_LIMIT_BYTES / total), device)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def release(device: torch.device) -> None:
    """Free cached memory after a failure; a lost card cannot, which gives a warning."""
    if device.type != "cuda":
        return
    try:
        torch.cuda.empty_cache()
    except RuntimeError as problem:
        LOGGER.warning("*** WARNING *** %s: %s", device, first_line(problem))


def synchronise(device: torch.device) -> None:
    """Wait until the card has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def is_device_failure(problem: BaseException) -> bool:
    """True if a device ran out of memory or was lost, False for a bug."""
    if isinstance(problem, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(problem, RuntimeError) and any(word in str(problem) for word in _FAILURES)


def is_out_of_memory(problem: BaseException) -> bool:
    """True if a device ran out of memory, or has too little left for any convolution algorithm."""
    return is_device_failure(problem) and any(word in str(problem) for word in ("out of memory", _NO_ENGINE))


def first_line(problem: BaseException) -> str:
    """The message of an error, without further lines; the name of its class if it has none."""
    return (str(problem) or type(problem).__name__).splitlines()[0]


def cpu_has_bfloat16() -> bool:
    """True if this CPU multiplies bfloat16 in hardware, which is faster than float32 with the same masks."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def device_named(name: str) -> torch.device:
    """`cpu`, `cuda` (the first card), or `auto`: CUDA if a card answers. Raises `HecktorError` if `cuda` does not."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise HecktorError("device cuda", "no CUDA device answers", "one (or --device auto or cpu)")
    # Some of torch's CUDA functions need the device's index.
    return torch.device("cuda", 0) if available and name != "cpu" else torch.device("cpu")
