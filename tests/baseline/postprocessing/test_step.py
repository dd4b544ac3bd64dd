"""`postprocess` on a working directory: rules, masks and features for the later steps, or a reason without rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from algorithm.heads.documents import Features
from algorithm.masks.segmentation import REMOVED
from baseline.cache import store_cached
from baseline.postprocessing import step
from baseline.postprocessing.record import load_rules_in_use, pack_rules, read_record, summarise_postprocessing
from baseline.postprocessing.step import copy_unfiltered, filter_patient, postprocess, transfer_removal
from baseline.release.cases import ReleaseCase, image_path, label_path, write_cases
from baseline.release.splits import load_or_make_splits, read_splits
from baseline.report.report import format_postprocessing
from baseline.work import WorkFolders
from contract import labels
from contract.editions import load_edition
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask
from contract.io.files import read_json, write_json
from contract.packages import NO_RULES, PostprocessingRules
from tests.baseline.postprocessing.patients import GRID, make_record_json, write_patients

Directory = tuple[list[ReleaseCase], WorkFolders, dict[str, Features]]
CENTRES = ("CHUM", "HMR", "MDA")


def write_directory(root: Path, patients: int, centres: tuple[str, ...] = CENTRES) -> Directory:
    """Write a working directory with measured features, ready for `postprocess`."""
    centre_of_patient = [centres[number % len(centres)] for number in range(patients)]
    cases, work = write_patients(root, centre_of_patient, np.random.default_rng(1), noise=0.05, smallest=12)
    write_cases(work, cases)
    write_json(work.prepare_json, {"options": {"release": "r", "edition": "hecktor2025", "spacing_mm": [4, 4, 4]}})
    load_or_make_splits(work.splits_json, cases, (), folds=3, seed=7)
    features: dict[str, Features] = {case.patient_id: {"gtvn_count": -1.0} for case in cases}
    store_cached(work.unfiltered_features_json, "measured", features)
    return cases, work, features


@pytest.fixture(scope="module")
def directory_and_features(tmp_path_factory: pytest.TempPathFactory) -> tuple[Directory, dict[str, Features]]:
    """Postprocess 36 patients whose masks have many small false lesions."""
    prepared = write_directory(tmp_path_factory.mktemp("work"), 36)
    return prepared, postprocess(prepared[1], prepared[2])


def test_rules_masks_and_features_are_written(directory_and_features: tuple[Directory, dict[str, Features]]) -> None:
    (cases, work, measured), features = directory_and_features
    record = read_record(work.postprocessing_json)
    assert record.why_not == ""
    assert record.rules.as_json() == load_rules_in_use(work) != {}
    assert record.patients == 36
    assert read_json(work.features_json)["result"] == features
    changed = 0
    for case in cases:
        name = case.patient_id
        before, after = (read_volume(path, np.uint8).array for path in (work.raw_mask(name), work.mask(name)))
        assert not after[before == 0].any()
        assert (features[name] == measured[name]) == (after == before).all()
        changed += (after != before).any()
    assert changed > 0


def test_the_cross_fitted_figures_cover_folds_and_centres(
    directory_and_features: tuple[Directory, dict[str, Features]],
) -> None:
    (_, work, _), _ = directory_and_features
    record = read_record(work.postprocessing_json)
    assert set(record.cross_fitted) == {"folds", "centres"}
    assert set(record.rules_by_group["centres"]) == set(CENTRES)
    gain = record.cross_fitted["centres"]["score"]
    assert gain.filtered - gain.unfiltered == pytest.approx(gain.difference.value)
    assert gain.difference.ci95_low > 0
    assert "score, limits found without the patient's centre" in summarise_postprocessing(work)
    assert [len(estimates) for estimates in record.cross_fitted.values()] == [4, 4]  # the score and three metrics


def test_the_step_is_skipped_when_nothing_changed(
    directory_and_features: tuple[Directory, dict[str, Features]],
) -> None:
    (_, work, measured), features = directory_and_features
    stamp = work.postprocessing_json.stat().st_mtime_ns
    assert postprocess(work, measured) == features
    assert work.postprocessing_json.stat().st_mtime_ns == stamp


@pytest.fixture
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let six patients be enough for rules instead of thirty."""
    monkeypatch.setattr(step, "MIN_PATIENTS", 6)


@pytest.mark.parametrize(
    ("patients", "centres", "why"),
    [
        (5, CENTRES, "5 patients with a reference, expected at least 6"),
        (6, ("CHUM",), "all patients are from one centre, but a rule must also gain with a centre left out"),
    ],
)
def test_too_few_patients_or_a_single_centre_give_a_reason(
    tmp_path: Path, few_are_enough: None, patients: int, centres: tuple[str, ...], why: str
) -> None:
    cases, work, measured = write_directory(tmp_path, patients, centres)
    assert postprocess(work, measured) == measured
    assert summarise_postprocessing(work) == f"no postprocessing rules: {why}"
    assert load_rules_in_use(work) is None
    assert f"{why}." in format_postprocessing(read_record(work.postprocessing_json))
    assert work.mask(cases[0].patient_id).read_bytes() == work.raw_mask(cases[0].patient_id).read_bytes()


def test_references_without_nodes_give_a_reason(tmp_path: Path, few_are_enough: None) -> None:
    cases, work, measured = write_directory(tmp_path, 6)
    for case in cases:
        reference = read_volume(label_path(work.raw, case), np.uint8).array
        write_mask(label_path(work.raw, case), np.where(reference == labels.GTVN, 0, reference).astype(np.uint8), GRID)
    assert postprocess(work, measured) == measured
    assert summarise_postprocessing(work) == "no postprocessing rules: no reference has a GTVn"


def test_without_the_step_masks_stay_unfiltered(tmp_path: Path) -> None:
    cases, work, measured = write_directory(tmp_path, 3)
    assert copy_unfiltered(work, measured) == measured
    assert load_rules_in_use(work) is None
    for case in cases:
        assert work.mask(case.patient_id).read_bytes() == work.raw_mask(case.patient_id).read_bytes()


def test_each_mask_follows_the_rules_that_were_fitted_without_its_fold(
    tmp_path: Path, few_are_enough: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules of the package remove all lesions, rules of folds 0 and 1 only GTVn, and fold 2 has no rules."""
    _, work, measured = write_directory(tmp_path, 6)
    package = PostprocessingRules(gtvp_volume_ml=1e5, gtvn_volume_ml=1e5)
    no_nodes = PostprocessingRules(gtvn_volume_ml=1e5)
    by_fold = {"fold 0": no_nodes, "fold 1": no_nodes, "fold 2": NO_RULES}
    record = {"why_not": "", "rules": package, "rules_by_group": {"folds": by_fold}}
    monkeypatch.setattr(step, "fit_record", lambda *_: record)
    features = postprocess(work, measured)
    for number, fold in enumerate(read_splits(work).folds):
        for name in fold:
            before, after = (read_volume(path, np.uint8).array for path in (work.raw_mask(name), work.mask(name)))
            if number == 2:
                np.testing.assert_array_equal(after, before)
            else:  # single voxels have different labels on the two grids
                assert np.sum(after == labels.GTVN) < 0.02 * np.sum(before == labels.GTVN)
                assert np.sum(after == labels.GTVP) > 0.98 * np.sum(before == labels.GTVP)
            assert features[name]["gtvn_count"] == (-1 if number == 2 else 0)
    assert load_rules_in_use(work) == package.as_json()


def test_rules_are_not_in_use_with_features_of_other_masks(tmp_path: Path) -> None:
    _, work, _ = write_directory(tmp_path, 3)
    write_json(work.postprocessing_json, make_record_json({"gtvn_volume_ml": 1.0}, made_from="one"))
    store_cached(work.features_json, "another", {})
    assert load_rules_in_use(work) is None
    store_cached(work.features_json, "one", {})
    assert load_rules_in_use(work) == {"gtvn_volume_ml": 1.0}


def test_each_voxel_follows_the_nearest_lesion() -> None:
    """Lesions have 2 voxels of 4 mm at x = 4..8, 20..24 and 36..40 mm; the CT has voxels of 2 mm."""
    grid = Geometry((12, 3, 3), (4.0, 4.0, 4.0), (0.0, 0.0, 0.0))
    ct = Geometry((23, 5, 5), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0))
    lesion_map = np.zeros(grid.array_shape, dtype=np.uint8)
    lesion_map[1, 1, 1:3], lesion_map[1, 1, 5:7], lesion_map[1, 1, 9:11] = REMOVED, 2, 1
    mask = np.zeros(ct.array_shape, dtype=np.uint8)
    mask[2, 2, 1:6], mask[2, 2, 9:14], mask[2, 2, 17:22] = 2, 2, 1
    after = transfer_removal(Volume(mask, ct), lesion_map, grid)
    assert not after[2, 2, 1:6].any()
    assert after[2, 2, 9:14].tolist() == [2] * 5
    assert after[2, 2, 17:22].tolist() == [1] * 5
    assert not after[mask == 0].any()


def test_a_patient_without_reference_is_filtered_too(tmp_path: Path) -> None:
    """No lesion below 1 ml, 16 voxels of 4 mm, remains."""
    cases, work, _ = write_directory(tmp_path, 3)
    case = replace(cases[0], mask=None)
    for number in range(2):
        target = image_path(work.raw, case, number)
        target.parent.mkdir(parents=True, exist_ok=True)
        image_path(work.raw, cases[0], number).rename(target)
    name, features = filter_patient(case, work, {case.patient_id: PostprocessingRules(gtvn_volume_ml=1.0)})
    assert name == case.patient_id
    nodes = read_volume(work.mask(name), np.uint8).array == labels.GTVN
    parts, count = ndimage.label(nodes, structure=np.ones((3, 3, 3)))
    assert np.bincount(parts.ravel())[1:].min() >= 16
    assert features is not None
    assert features["gtvn_count"] == count


# Rules of packages


RULES = {"gtvn_volume_ml": 0.5}
EDITION = load_edition("hecktor2025")


def test_a_file_without_rules_is_noted_with_its_reason(tmp_path: Path) -> None:
    """`hecktor train postprocess` writes such a file if no rule gains."""
    file = tmp_path / "postprocessing.json"
    write_json(file, make_record_json({}, "no rule gains enough"))
    note = "no postprocessing rules from postprocessing.json: no rule gains enough"
    assert pack_rules(file, None, EDITION) == ({}, [note])
    write_json(file, make_record_json(RULES))
    assert pack_rules(file, None, EDITION) == (RULES, [])


def test_a_file_of_an_older_format_is_refused_with_the_step_to_run(tmp_path: Path) -> None:
    file = tmp_path / "postprocessing.json"
    write_json(file, make_record_json(RULES, format_version=5))
    message = r"^postprocessing\.json\.format_version: found 5, expected 6; run `hecktor train postprocess` again$"
    with pytest.raises(ModelPackageError, match=message):
        pack_rules(file, None, EDITION)


def test_rules_of_another_edition_are_refused(tmp_path: Path) -> None:
    """Rules depend on the score of their edition."""
    write_json(tmp_path / "postprocessing.json", make_record_json(RULES, edition="hecktor2026"))
    with pytest.raises(ModelPackageError, match=r"^postprocessing\.json: found edition 'hecktor2026'"):
        pack_rules(tmp_path / "postprocessing.json", None, EDITION)


def test_heads_of_filtered_masks_without_the_rules_are_noted(tmp_path: Path) -> None:
    """Heads that `hecktor train heads --masks` fitted do not follow the rules, and have no note."""
    heads, rules_json = tmp_path / "heads.json", tmp_path / "postprocessing.json"
    assert pack_rules(None, heads, EDITION) == ({}, [])
    write_json(rules_json, make_record_json(RULES))
    store_cached(tmp_path / "features.json", "key", {"A-1": {}})
    rules, (note,) = pack_rules(None, heads, EDITION)
    assert rules == {}
    assert note.startswith(
        "the heads were fitted on masks that were filtered by the postprocessing rules of postprocessing.json, which are not packed; "
    )
    assert note.endswith(f"add --postprocessing {rules_json}")
    store_cached(tmp_path / "features.json", "masks of the user", {"A-1": {}})
    assert pack_rules(None, heads, EDITION) == ({}, [])
