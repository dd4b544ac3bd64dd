"""Fuzz one reader with atheris: `python -m tests.fuzz NAME [libFuzzer options]`, from `scripts/fuzz`."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["contract", "evaluation", "algorithm.heads"]):
    from tests.fuzz.readers import READERS


def main() -> None:
    """Start from the valid file and what earlier runs kept in out/fuzz/NAME; a finding is written there, too."""
    name, *options = sys.argv[1:]
    corpus = Path("out/fuzz") / name
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "valid").write_bytes(READERS[name].valid())
    arguments = [sys.argv[0], f"-artifact_prefix={corpus}/finding-", "-timeout=10", "-rss_limit_mb=2000", *options]
    atheris.Setup([*arguments, str(corpus)], READERS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
