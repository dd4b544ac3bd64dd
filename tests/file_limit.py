"""Programs that cannot write large files."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

_LIMIT_BYTES = 100_000


def run_with_file_limit(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a folder; a file fails at 100,000 bytes, as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT_BYTES, _LIMIT_BYTES))

    return subprocess.run(
        [sys.executable, "-B", "-c", program],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
    )
