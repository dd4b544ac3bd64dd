"""PETs in Bq/ml turned into SUV by the factors of a table on the user's disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from algorithm.case.uptake import LARGEST_PLAUSIBLE_SUV, MOST_FACTOR_RATIO, factor_fault, tissue_uptake
from baseline.release.cases import Release
from contract.errors import Finding
from contract.images.volumes import Volume, finite
from contract.release.factors import read_suv_factors
from contract.release.tables import ReleaseTable


def with_suv_factors(release: Release, path: Path) -> Release:
    """The release with the table's factor in each case, and with the table's problems."""
    table = ReleaseTable(path.name)
    factors = read_suv_factors(path, table, {case.patient_id for case in release.cases})
    cases = tuple(replace(case, suv_factor=factors.get(case.patient_id)) for case in release.cases)
    return replace(release, cases=cases, problems=(*release.problems, *table.problems))


def scaled_by_factor(pet: Volume, ct: Volume | None, factor: float | None, name: str) -> tuple[Volume, Finding | None]:
    """The PET in SUV if its values can only be Bq/ml and the factor is plausible; and what was done with the factor.

    The finding is None without a factor. `ct`, in HU, gives the scale that muscle and fat suggest.
    """
    if factor is None:
        return pet, None
    known = finite(pet, 0.0)[0]
    highest = float(known.array.max())
    if highest <= LARGEST_PLAUSIBLE_SUV:
        return pet, Finding(
            name, f"highest value {highest:.6g}, already SUV", "Bq/ml", f"factor {factor:.4g} not applied"
        )
    fault = factor_fault(factor, highest, () if ct is None else tissue_uptake(ct, known))
    if fault:
        expected = f"at most {MOST_FACTOR_RATIO:g} times more or less"
        return pet, Finding(name, f"factor {factor:.4g} {fault}", expected, "not applied")
    found = f"highest value {highest:.6g}: an activity concentration (Bq/ml)"
    scaled = Volume(pet.array * np.float32(factor), pet.geometry)
    return scaled, Finding(name, found, "SUV", f"scaled by its factor {factor:.4g}")
