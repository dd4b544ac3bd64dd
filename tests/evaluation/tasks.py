"""The tasks of the default edition, for tests."""

from contract.editions import load_edition

SEGMENTATION, RFS, HPV = load_edition().algorithms
(MASK,), (RISK,), (STATUS,) = (task.answers for task in (SEGMENTATION, RFS, HPV))
