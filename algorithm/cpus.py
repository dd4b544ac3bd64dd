"""Limit the libraries' threads to the CPUs that this process may use: by themselves they count the host's cores."""

from __future__ import annotations

import os

import SimpleITK as sitk

from contract.cpus import usable_cpus


def limit_itk_threads() -> None:
    """Lower SimpleITK's threads to the CPUs that this process may use."""
    threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, usable_cpus()))


def limit_torch_threads() -> None:
    """Lower torch's threads to the CPUs that this process may use, unless `OMP_NUM_THREADS` sets their number."""
    import torch  # only where a network runs

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cpus()))
