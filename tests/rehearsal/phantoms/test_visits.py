"""MR of two visits: sizes, grids and changes of the lesions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contract.editions import load_edition
from contract.images.volumes import Volume
from rehearsal.jobs.cases import find_cases
from rehearsal.jobs.release import has_release_layout, read_release_cohort
from rehearsal.phantoms.centres import TRAINING_CENTRES, find_centre
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.make import LAYOUTS
from rehearsal.phantoms.rendering import Visits, render_visits

EDITION = load_edition("hntsmrg2024")


@pytest.fixture(scope="module")
def case() -> PhantomCase:
    return make_case(3, 0, [find_centre(code) for code in TRAINING_CENTRES], "head_and_neck")


@pytest.fixture(scope="module")
def visits(case: PhantomCase) -> Visits:
    return render_visits(case, coarsening=4)


def dice(first: Volume, second: Volume) -> float:
    both = np.count_nonzero((first.array > 0) & (second.array > 0))
    return 2 * both / (np.count_nonzero(first.array) + np.count_nonzero(second.array))


def test_lesions_shrink_and_the_registered_mask_lies_near_them(case: PhantomCase, visits: Visits) -> None:
    earlier, registered, later = (
        visits.pairs[key][1] for key in (("earlier", False), ("earlier", True), ("later", False))
    )
    planned = case.disease.gtvp_ml + case.disease.gtvn_ml
    volume = np.count_nonzero(earlier.array) * earlier.geometry.voxel_volume_mm3 / 1000
    assert volume == pytest.approx(planned, rel=0.15)
    assert 0 < np.count_nonzero(later.array) < np.count_nonzero(earlier.array)
    assert dice(earlier, registered) < dice(registered, later) < 0.95
    again = render_visits(case, coarsening=4).pairs["later", False][0]
    np.testing.assert_array_equal(again.array, visits.pairs["later", False][0].array)


def test_both_layouts_give_each_task_its_images(tmp_path: Path, case: PhantomCase, visits: Visits) -> None:
    for name in ("release", "platform"):
        LAYOUTS[name](EDITION).write_case(tmp_path / name, case, visits)
    assert has_release_layout(tmp_path / "release", EDITION)
    assert not has_release_layout(tmp_path / "platform", EDITION)
    for task, folder in zip(EDITION.algorithms, ("preRT", "midRT"), strict=True):
        released = read_release_cohort(tmp_path / "release", EDITION, task)
        mounted = find_cases(tmp_path / "platform", task)
        assert [len(patient.files) for patient in (*released.cases, *mounted)] == [len(task.inputs)] * 2
        assert released.masks[case.patient_id].parent.name == folder
        assert released.warnings == ()
        assert (tmp_path / "platform" / EDITION.get_reference_folder(task) / f"{case.patient_id}.mha").is_file()
