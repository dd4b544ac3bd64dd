"""The two ways the platform calls an algorithm, side by side."""

from __future__ import annotations

import filecmp
from pathlib import Path

from rehearsal.platform import RehearsalResult
from rehearsal.runners.jobs import JobResult


def comparison(executed: RehearsalResult, invoked: RehearsalResult, output_dir: Path) -> str:
    """A table of seconds: the start, each case and all of it, for `exec` and for `invoke`; then the answers compared.

    Args:
        executed: a process a case, each of which pays for its start.
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
    names = [path.name for path in sorted(one_way.glob("*"))]
    same, _, _ = filecmp.cmpfiles(one_way, other_way, names, shallow=False)
    return "\n".join([*lines, f"equal answers: {len(same)} of {len(executed.jobs)}"])


def _shown(job: JobResult) -> str:
    return f"{'' if job.failure is None else 'failed after '}{job.outcome.seconds:.1f}"
