"""T and N stages of planned lesions, by the AJCC/UICC manual, 7th edition, oropharynx."""

from __future__ import annotations

from typing import Final

from contract import labels
from rehearsal.phantoms.anatomy.lesions import Disease
from rehearsal.phantoms.anatomy.surfaces import largest_diameter_mm

# Largest diameter in mm of T1 and T2.
T_LIMITS_MM: Final = ((20.0, "T1"), (40.0, "T2"))
N1_LIMIT_MM, N2_LIMIT_MM = 30.0, 60.0


def t_stage(disease: Disease) -> str | None:
    """T1 up to 2 cm, T2 up to 4 cm, T3 above, T4 with invasion of bone; None without a primary tumour."""
    primary = [lesion for lesion in disease.lesions if lesion.label == labels.GTVP]
    if not primary:
        return None
    if any(lesion.invades_bone for lesion in primary):
        return "T4"
    size_mm = max(largest_diameter_mm(lesion) for lesion in primary)
    return next((stage for limit_mm, stage in T_LIMITS_MM if size_mm <= limit_mm), "T3")


def n_stage(disease: Disease) -> str:
    """N0 without nodes, N1 for one ipsilateral node up to 3 cm, N3 with a node above 6 cm, otherwise N2.

    Ipsilateral means on the side of the primary tumour. Without one, a single node counts as ipsilateral.
    """
    if not disease.nodes:
        return "N0"
    size_mm = max(largest_diameter_mm(node) for node in disease.nodes)
    if size_mm > N2_LIMIT_MM:
        return "N3"
    sides = {lesion.place[0] > 0 for lesion in disease.lesions if lesion.label != labels.BACKGROUND}
    return "N1" if len(disease.nodes) == 1 and len(sides) == 1 and size_mm <= N1_LIMIT_MM else "N2"
