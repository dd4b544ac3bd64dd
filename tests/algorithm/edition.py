"""The default edition, the edition of 2026, and their algorithms by name."""

from __future__ import annotations

from contract.editions import load_edition

EDITION = load_edition()
TASKS = EDITION.algorithms
SEGMENTATION, RFS, HPV = TASKS
EDITION_2026 = load_edition("hecktor2026")
COMBINED = EDITION_2026.find_algorithm()
