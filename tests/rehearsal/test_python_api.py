"""Python API of the phantoms, and its example in docs/research.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from contract.errors import InputError
from contract.images.volumes import read_volume
from rehearsal import make_phantom
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions, make_case
from rehearsal.phantoms.make import make_cohort

PAGE = Path(__file__).parents[2] / "docs" / "research.md"


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    section = PAGE.read_text().split("## Make phantoms")[1].split("\n## ")[0]
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(example, names)
    case = make_case(1, 3, CENTRES, "head_and_neck")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"{case.patient_id} T")
    assert printed[0].endswith(f" {case.outcome.hpv_positive} {case.outcome.rfs_days} {case.outcome.relapse}")
    assert printed[2] == f"age {case.clinical.age_years} years"


@pytest.mark.slow
def test_a_phantom_is_the_patient_of_the_cohort(tmp_path: Path) -> None:
    centres = tuple(centre.code for centre in CENTRES)
    options = CohortOptions(8, centres, "release", field_of_view="head_and_neck", ct_coarsening=16)
    name = list(make_cohort(options, 2, tmp_path, jobs=1))[1]
    phantom = make_phantom(8, 1, field_of_view="head_and_neck", ct_coarsening=16)
    assert phantom.patient_id == name
    assert phantom.ct.array.shape[1:] == (32, 32)
    assert phantom.recorded == make_case(8, 1, CENTRES, "head_and_neck").record
    for volume, suffix in ((phantom.ct, "__CT"), (phantom.pet, "__PT"), (phantom.mask, "")):
        written = read_volume(tmp_path / "Task 1" / name / f"{name}{suffix}.nii.gz")
        assert volume.array.dtype == written.array.dtype
        np.testing.assert_array_equal(volume.array, written.array)


def test_an_unknown_field_of_view_is_an_error() -> None:
    with pytest.raises(InputError, match=r"^field_of_view: found 'foot'"):
        make_phantom(1, field_of_view="foot")
