"""The default edition and its algorithms by name."""

from __future__ import annotations

from contract.editions import load_edition

EDITION = load_edition()
TASKS = EDITION.algorithms
SEGMENTATION, RFS, HPV = TASKS
