"""Comparison of `exec` and `invoke`, the platform's two ways of calling an algorithm."""

from __future__ import annotations

import filecmp
from pathlib import Path

from rehearsal.jobs.execute import JobResult
from rehearsal.record import RehearsalResult


def comparison(executed: RehearsalResult, invoked: RehearsalResult, output_dir: Path) -> str:
    """A table of seconds (start-up, each case, total) for `exec` and `invoke`, and the number of equal answers.

    Args:
        executed: one process for each case, start-up included.
        invoked: the same cases through one server.
        output_dir: holds `exec/predictions` and `invoke/predictions`; answers are compared byte by byte.
    """
    start_s = sum(invoked.startup_s)
    rows = [("seconds", "exec", "invoke"), ("start-up", "in each case", f"{start_s:.1f} once")]
    for one, other in zip(executed.jobs, invoked.jobs, strict=True):
        rows.append((one.job.case.case_id, _shown(one), _shown(other)))
    executed_s, invoked_s = (sum(job.outcome.seconds for job in result.jobs) for result in (executed, invoked))
    rows.append(("together", f"{executed_s:.1f}", f"{start_s + invoked_s:.1f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{name:<{widths[0]}}  {one:>{widths[1]}}  {other:>{widths[2]}}" for name, one, other in rows]
    one_way, other_way = (output_dir / method / "predictions" for method in ("exec", "invoke"))
    names = [str(path.relative_to(one_way)) for path in sorted(one_way.rglob("*")) if path.is_file()]
    same, _, _ = filecmp.cmpfiles(one_way, other_way, names, shallow=False)
    answers = max(1, *(len(job.outputs) for job in executed.jobs)) * len(executed.jobs)
    return "\n".join([*lines, f"equal answers: {len(same)} of {answers}"])


def _shown(job: JobResult) -> str:
    return f"{'' if job.failure is None else 'failed after '}{job.outcome.seconds:.1f}"
