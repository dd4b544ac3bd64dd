"""`predict` while another program fills the card: what answers, and how."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from benchmarks.device.job import CheckJob
from benchmarks.device.patients import predict

# GB that the other program leaves free; the context of `predict` takes a part of it, or does not fit.
FREE_GB: Final = (1.0, 0.5, 0.2)
_LEAST_S: Final = 20.0


def fallbacks(job: CheckJob) -> None:
    """One pass of the default network at each level; the answer may come from the CPU, but it must come."""
    model, input_dir = job.package("default"), job.input_dir("head_and_neck")
    levels = FREE_GB if job.on_card else (None,)
    for number, free_gb in enumerate(levels):
        limit_s = max(_LEAST_S, 0.9 * job.left_s() / (len(levels) - number))
        name = "no card to fill" if free_gb is None else f"{free_gb:g} GB left"
        with filled_card(free_gb):
            run = predict(job, f"fallback-{number}", model, input_dir, job.device, limit_s, "--passes", "1")
        failures = [text for text in run.failures(job.device) if not text.startswith("answered by")]
        notices = [str(notice["found"]) for notice in run.record.get("notices", ())]
        figures = run.figures() | {"time limit (s)": limit_s, "last line": run.last_line, "notices": "; ".join(notices)}
        job.row(name, figures, failures=failures)


@contextmanager
def filled_card(free_gb: float | None) -> Iterator[None]:
    """Take the card's memory but for `free_gb`; None takes nothing."""
    if free_gb is None:
        yield
        return
    torch.cuda.init()
    free = torch.cuda.mem_get_info()[0]
    balloon = torch.empty(max(0, free - int(free_gb * 1e9)), dtype=torch.uint8, device="cuda")
    sys.stdout.write(f"balloon: {balloon.numel() / 1e9:.2f} GB, left: {torch.cuda.mem_get_info()[0] / 1e9:.2f} GB\n")
    try:
        yield
    finally:
        del balloon
        torch.cuda.empty_cache()
