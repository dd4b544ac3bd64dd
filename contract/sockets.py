"""Sockets of HECKTOR 2025 by name, for code that does not read its edition yet."""

from __future__ import annotations

from typing import Final

from contract.editions import Socket, load_edition

_EDITION: Final = load_edition()
CT, PET, EHR, CT_PLANNING, RT_DOSE = (_EDITION.inputs[name] for name in ("ct", "pet", "ehr", "ct_planning", "rt_dose"))
MASK, RFS_RISK, HPV_STATUS = (algorithm.answers[0].socket for algorithm in _EDITION.algorithms)
ALL_SOCKETS: Final[tuple[Socket, ...]] = (CT, PET, EHR, CT_PLANNING, RT_DOSE, MASK, RFS_RISK, HPV_STATUS)
