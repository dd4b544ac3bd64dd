"""Tests of `hecktor train heads --masks DIR`: heads of masks from any networks, without networks in the working
directory.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baseline import make_report
from baseline.cli import main
from baseline.fit import heads_are_current
from baseline.heads.models.targets import RISK_FEATURES, make_targets
from baseline.network.out_of_fold import average_masks, measure_masks, write_probabilities
from baseline.release.cases import ReleaseCase, image_path, read_cases
from baseline.work import WorkFolders
from contract.editions import load_edition
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_header, read_volume, write_mask, write_volume
from contract.io.files import read_json, write_json
from tests.baseline.conftest import PATIENTS
from tests.baseline.prepared import make_block, run_heads


@pytest.mark.slow
def test_heads_and_report_of_given_masks(work_with_heads: tuple[WorkFolders, Path]) -> None:
    """Features describe the masks: the volume of 8 x 8 x 8 voxels of the CT, within a fifth on the 3 mm grid. For later
    masks, which the heads have not seen, there is no report.
    """
    work, _ = work_with_heads
    assert sorted(read_json(work.heads_json)) == ["hpv", "hpv_clinical", "rfs", "rfs_clinical"]
    rows = read_json(work.features_json)["result"]
    assert len(rows) == PATIENTS
    case = read_cases(work)[0]
    mask, grid = make_block(case)
    volume_ml = 512 * float(np.prod(grid.spacing_mm)) / 1000
    assert rows[case.patient_id]["gtvp_volume_ml"] == pytest.approx(volume_ml, rel=0.2)
    np.testing.assert_array_equal(read_volume(work.mask(case.patient_id)).array, mask)
    assert make_report(work, 1).is_file()
    write_json(work.features_json, {"key": "of other masks", "result": rows})
    with pytest.raises(HecktorError, match=r"^heads\.json: fitted by another version, or before masks.*"):
        make_report(work, 1)
    with pytest.raises(HecktorError, match="plan"):
        main(["heads", "--work", str(work.root)])


@pytest.mark.slow
def test_only_changed_masks_and_other_definitions_are_measured_again(
    work_with_heads: tuple[WorkFolders, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An additional feature in a model of the heads fits them again."""
    work, masks = work_with_heads
    first, *other_files = (work.features(case.patient_id) for case in read_cases(work))
    before = {path: path.stat().st_mtime_ns for path in (work.heads_json, work.features_json, first, *other_files)}
    path = next(masks.glob(f"{first.stem}*"))
    path.write_bytes(path.read_bytes())  # the same content at a later time
    run_heads(work, masks)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    case = read_cases(work)[0]
    volume_ml = read_json(first)["result"]["gtvp_volume_ml"]
    write_mask(path, *make_block(case, 10))
    run_heads(work, masks)
    assert read_json(first)["result"]["gtvp_volume_ml"] > 1.4 * volume_ml  # 1000 / 512 voxels
    assert [file.stat().st_mtime_ns for file in other_files] == [before[file] for file in other_files]
    assert read_json(work.features_json)["result"][case.patient_id] == read_json(first)["result"]

    monkeypatch.setattr("algorithm.heads.measure._DEFINITIONS", 10**6)
    assert not heads_are_current(work)
    run_heads(work, masks, "--jobs", "2")
    assert heads_are_current(work)
    assert all(file.stat().st_mtime_ns > before[file] for file in other_files)
    targets = make_targets(load_edition())
    family = replace(targets[0].families[0], transforms={**RISK_FEATURES, "spread_mm": "identity"})
    changed_targets = (replace(targets[0], families=(family, *targets[0].families[1:])), *targets[1:])
    monkeypatch.setattr("baseline.fit.make_targets", lambda _: changed_targets)
    assert not heads_are_current(work)


@pytest.mark.slow
def test_masks_with_other_numbers_and_organs(work_with_heads: tuple[WorkFolders, Path]) -> None:
    """GTVp is 7, GTVn 1, and label 2 an organ: with `--labels` features and masks equal the result of the usual
    numbers.
    """
    work, masks = work_with_heads
    rows, case = read_json(work.features_json)["result"], read_cases(work)[0]
    expected = read_volume(work.mask(case.patient_id)).array
    for path in masks.iterdir():
        mask = read_volume(path)
        numbers = np.array([0, 7, 1], np.uint8)[mask.array]
        numbers[0] = 2
        write_volume(path, Volume(numbers, mask.geometry))
    run_heads(work, masks, "--labels", "GTVp=7,GTVn=1")
    assert read_json(work.features_json)["result"] == rows
    np.testing.assert_array_equal(read_volume(work.mask(case.patient_id)).array, expected)
    with pytest.raises(HecktorError, match="--labels: found without masks of your own"):
        run_heads(work, "reference", "--labels", "GTVp=7,GTVn=1")


def test_masks_on_the_prepared_grid(work_and_masks: tuple[WorkFolders, Path], tmp_path: Path) -> None:
    """A network that was trained on the prepared images validates on their grid; its mask is stored on the CT's grid."""
    work, _ = work_and_masks
    case = read_cases(work)[0]
    prepared = read_header(image_path(work.raw, case, 0)).geometry
    mask = np.zeros(prepared.array_shape, dtype=np.uint8)
    z, y, x = (size // 2 for size in mask.shape)
    mask[z - 4 : z + 4, y - 4 : y + 4, x - 4 : x + 4] = 1
    path = tmp_path / f"{case.patient_id}.nii.gz"
    write_volume(path, Volume(mask, prepared))
    features = measure_masks(work, {case.patient_id: path})
    volume_ml = 512 * float(np.prod(prepared.spacing_mm)) / 1000
    assert features[case.patient_id]["gtvp_volume_ml"] == pytest.approx(volume_ml)
    stored = read_volume(work.mask(case.patient_id))
    assert not stored.geometry.find_differences(read_header(case.ct).geometry)
    # On pixels of 8 mm the volume of such a cube varies by about 10%.
    stored_ml = float((stored.array == 1).sum()) * stored.geometry.voxel_volume_mm3 / 1000
    assert stored_ml == pytest.approx(volume_ml, rel=0.3)
    assert [read_label(stored, work, case, offset) for offset in (0, 20)] == [1, 0]


def test_unusable_masks_are_refused_by_name(work_and_masks: tuple[WorkFolders, Path], tmp_path: Path) -> None:
    work, masks = work_and_masks
    case = read_cases(work)[0]
    name, path = case.patient_id, next(masks.glob(f"{case.patient_id}*"))
    mask, grid = make_block(case)
    write_volume(path, Volume(mask * 3, grid))
    with pytest.raises(
        HecktorError, match=rf"{name}\.nii\.gz: labels 3, 6, expected 0 background, 1 GTVp, 2 GTVn, or --l"
    ):
        run_heads(work, masks)
    write_volume(path, Volume(mask[1:], Geometry((*grid.size[:2], grid.size[2] - 1), grid.spacing_mm, grid.origin_mm)))
    with pytest.raises(HecktorError, match=rf"{name}\.nii\.gz: not on the grid of .*, expected the CT's grid"):
        run_heads(work, masks)
    renamed = path.rename(path.with_name(f"{name}_pred.nii.gz"))
    with pytest.raises(HecktorError, match=rf"; {name}_pred differs from {name} by the ending '_pred'$"):
        run_heads(work, masks)
    renamed.unlink()
    with pytest.raises(HecktorError, match=rf"--masks: no mask of {name} in masks, expected .* all 8 prepared"):
        run_heads(work, masks)
    for suffix in (".nii.gz", ".mha"):
        write_mask(masks / f"{name}{suffix}", mask, grid)
    with pytest.raises(HecktorError, match=rf"--masks: {name}\.mha and .*, expected one mask"):
        run_heads(work, masks)
    with pytest.raises(HecktorError, match=r"--masks: no folder .*nothing"):
        run_heads(work, tmp_path / "nothing")
    with pytest.raises(HecktorError, match="--masks: found with --networks"):
        main(["heads", "--work", str(work.root), "--masks", str(masks), "--networks", str(masks)])
    assert not work.heads_json.exists()


@pytest.mark.slow
def test_heads_of_reference_masks_are_stored_separately(
    work_with_heads: tuple[WorkFolders, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Features and heads of the existing masks do not change. Reference masks that were measured are not measured again."""
    work, _ = work_with_heads
    before = {path: path.read_bytes() for path in (work.features_json, work.heads_json, work.cross_validation_json)}
    run_heads(work, "reference")
    assert {path: path.read_bytes() for path in before} == before
    references = work.with_reference_masks()
    assert f"written: {references.heads_json}, which `hecktor package --heads` takes\n" in capsys.readouterr().out
    assert references.features_json == work.root / "reference_masks" / "features.json"
    rows = read_json(references.features_json)["result"]
    case = read_cases(work)[0]
    assert case.mask is not None
    reference = read_volume(case.mask)
    volume_ml = np.count_nonzero(reference.array == 1) * reference.geometry.voxel_volume_mm3 / 1000
    assert rows[case.patient_id]["gtvp_volume_ml"] == pytest.approx(volume_ml, rel=0.25)
    assert set(read_json(references.heads_json)) == set(read_json(work.heads_json))
    first = references.features(case.patient_id).stat().st_mtime_ns
    run_heads(work, "reference")
    assert references.features(case.patient_id).stat().st_mtime_ns == first


def test_reference_masks_of_a_release_without_masks(work_and_masks: tuple[WorkFolders, Path]) -> None:
    work, _ = work_and_masks
    rows = read_json(work.cases_json)["cases"]
    write_json(work.cases_json, {"cases": [{**row, "mask": None} for row in rows]})
    with pytest.raises(HecktorError, match="--masks reference: no patient with a reference mask"):
        run_heads(work, "reference")


def test_masks_by_the_mean_probabilities_of_two_trainings(
    work_and_masks: tuple[WorkFolders, Path], tmp_path: Path
) -> None:
    """Two blocks of the prepared grid: probabilities of GTVp 0.6 and 0.2 in the first have the mean 0.4, background;
    0.4 and 0.8 in the second have the mean 0.6. The first training by itself gives the opposite. A training without a
    patient's probabilities is refused.
    """
    work, _ = work_and_masks
    trainings = [WorkFolders(Path(shutil.copytree(work.root, tmp_path / name, symlinks=True))) for name in ("a", "b")]
    for training, (first, second) in zip(trainings, ((0.6, 0.4), (0.2, 0.8)), strict=True):
        for case in read_cases(work):
            size = read_header(image_path(work.raw, case, 0)).geometry.array_shape
            foreground = np.zeros((3, *size), np.float32)
            z, y, x = (slice(number // 2 - 6, number // 2 + 7) for number in size)  # four voxels of the CT
            foreground[1, z, y, x], foreground[1, z, y, x.start + 20 : x.stop + 20] = first, second
            write_probabilities(training.probabilities(case.patient_id), foreground, np.zeros(size, np.uint8))
    case = read_cases(work)[0]
    for selected, expected in ((trainings, [0, 1]), (trainings[:1], [1, 0])):
        mask = read_volume(average_masks(work, selected)[case.patient_id])
        assert [read_label(mask, work, case, offset) for offset in (0, 20)] == expected
    trainings[1].probabilities(case.patient_id).unlink()
    with pytest.raises(
        HecktorError, match=rf"^b: no out-of-fold probabilities of {case.patient_id}, expected `hecktor"
    ):
        average_masks(work, trainings)


def read_label(mask: Volume, work: WorkFolders, case: ReleaseCase, offset: int) -> int:
    """Return the label on the CT's grid in the middle of the prepared grid, or `offset` voxels away along x."""
    grid, ct = read_header(image_path(work.raw, case, 0)).geometry, mask.geometry
    middle = [number // 2 + far for number, far in zip(grid.size, (offset, 0, 0), strict=True)]
    x, y, z, _ = np.rint(ct.physical_to_index_matrix() @ grid.index_to_physical_matrix() @ [*middle, 1])
    return int(mask.array[int(z), int(y), int(x)])
