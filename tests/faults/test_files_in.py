"""Inputs and weights that change, disappear or are damaged, and scans stored in ways that users send."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from algorithm import Predictor
from algorithm.cli import main
from algorithm.network.networks import build_network, iterate_tensors, load_weights
from algorithm.network.package import load_package
from contract.errors import Finding, ModelPackageError, run_main
from contract.images.volumes import Volume, read_volume
from contract.io.files import read_json
from rehearsal.phantoms.body import BLADDER_BOTTOM, BRAIN_BOTTOM, LIVER_TOP, LUNG_APEX
from rehearsal.phantoms.rendering import Rendered
from tests.algorithm.edition import COMBINED, RFS, SEGMENTATION
from tests.conftest import EHR, CaseFolder, write_manifest
from tests.faults import odd_scans
from tests.faults.conftest import CLINICAL, THRESHOLD, CheckFault, Fault, Run, name_of

# Anatomical heights.
TEETH, CHIN = -22.0, -40.0

# Files that change while they are read, and damaged weights

CT, PET, WEIGHTS = "0a1b2c3d-ct.mha: ", "4e5f6a7b-pet.mha: ", "error: fold_0.safetensors: "
REFUSED_CT: Final = f"error: {CT}"
CHANGES: Final = {
    "truncated": "os.truncate({0}, 600)",
    "grown": "Path({0}).write_bytes(Path({0}).read_bytes() * 2)",
    "written again": "[time.sleep(0.1), Path({0}).write_bytes(Path({0}).read_bytes())]",
    "replaced": "[Path({0} + '~').write_bytes(Path({0}).read_bytes()), os.replace({0} + '~', {0})]",
    "gone": "os.unlink({0})",
}
# Replace the CT by a file of the same size that lies elsewhere in space.
MOVE: Final = (
    "after contract.images.volumes:_read_unchecked_header 1 "
    "[Path({0} + '~').write_bytes(Path({0}).read_bytes().replace(b'Offset = -92', b'Offset = -12')), "
    "os.replace({0} + '~', {0})]"
).format("str(arguments[0])")
READ_ERROR: Final = "raise contract.images.metaimage:_inflate_into {} read-error"
RECORD: Final = "run contract.patient:read_text 1 os.{}"
ONE_PASS: Final = ("--passes", "1")
Change = Callable[[bytes], bytes]


def change_image(change: str, call: int = 1) -> str:
    """Change a compressed image when its header is read and the file is open; the first call reads the CT."""
    return f"run contract.images.metaimage:_inflate_into {call} {CHANGES[change].format('arguments[1].name')}"


def change_uncompressed(change: str) -> str:
    return f"run contract.images.metaimage:_read_uncompressed 1 {CHANGES[change].format('arguments[0].name')}"


def write_uncompressed(run: Run) -> None:
    run.case.write(compress=False)


def flip_bit(bit: int) -> Change:
    def change(content: bytes) -> bytes:
        damaged = bytearray(content)
        damaged[bit // 8 % len(damaged)] ^= 1 << bit % 8
        return bytes(damaged)

    return change


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def enlarge(content: bytes) -> bytes:
    """Set all weights near the largest number of float32."""
    return save({name: torch.full_like(tensor, 3e38) for name, tensor in load(content).items()})


def damage_weights(change: Change, *, signed: bool, fold: int = 0) -> Callable[[Run], None]:
    """Change a weights file in a copy of the package, whose manifest gets the new checksum if it is signed."""

    def prepare(run: Run) -> None:
        root = run.case.root / "damaged"
        shutil.copytree(run.package, root)
        path = root / f"fold_{fold}.safetensors"
        path.write_bytes(change(path.read_bytes()))
        if signed:
            write_manifest(root, edition=run.edition)
        run.package = root

    return prepare


FAULTS: Final = [
    *(
        Fault(f"compressed CT {change}", SEGMENTATION, [change_image(change)], REFUSED_CT, 1, THRESHOLD)
        for change in CHANGES
    ),
    Fault("compressed PET truncated", SEGMENTATION, [change_image("truncated", 2)], f"error: {PET}", 1, THRESHOLD),
    *(
        Fault(f"uncompressed CT {change}", SEGMENTATION, [fault], REFUSED_CT, 1, THRESHOLD, prepare=write_uncompressed)
        for change, fault in ((change, change_uncompressed(change)) for change in CHANGES)
    ),
    Fault("CT replaced between header and pixels", SEGMENTATION, [MOVE], f"{CT}changed while it was", 1, THRESHOLD),
    Fault("disk", SEGMENTATION, [READ_ERROR.format(1)], f"{CT}cannot be read (Input", 1, THRESHOLD),
    Fault("record truncated", RFS, [RECORD.format("truncate(arguments[0], 20)")], "ehr.json: not valid", 1, CLINICAL),
    Fault("record gone", RFS, [RECORD.format("unlink(arguments[0])")], "ehr.json: not found", 1, CLINICAL),
    # Four answers go on without a PET or record. The grid of a changed CT is known from its header.
    *(
        Fault(f"four answers, {name}", COMBINED, [fault], options=ONE_PASS, says=says)
        for name, fault, says in (
            ("CT", change_image("truncated"), [CT, "; an empty mask and fallbacks are written"]),
            ("PET", change_image("gone", 2), [PET, "; continuing with only the CT; expect an empty mask"]),
            ("disk", READ_ERROR.format(0), [f"{CT}cannot be read (Input", "; an empty mask and fallbacks are written"]),
            ("record", RECORD.format("unlink(arguments[0])"), ["; continuing without clinical variables"]),
        )
    ),
    # Damaged weights would fail every case, even with fallbacks; a submission that fails at once names the reason.
    *(
        Fault(
            f"{name} in {task.name}", task, (), WEIGHTS, 1, prepare=damage_weights(change, signed=signed), says=[says]
        )
        for name, task, change, signed, says in (
            ("weights with a flipped bit", SEGMENTATION, flip_bit(100_000), False, "the file was modified"),
            ("truncated weights", COMBINED, truncate, False, "bytes, expected "),
            ("signed weights, header's bit flipped", COMBINED, flip_bit(3), True, "not a safetensors file"),
            ("truncated and signed weights", SEGMENTATION, truncate, True, "not a safetensors file"),
        )
    ),
    # Only the pass of a signed fold notices the damage; by then there is an answer.
    Fault(
        "a later fold",
        COMBINED,
        (),
        "1 of 4 passes",
        prepare=damage_weights(truncate, signed=True, fold=1),
        says=["left out: fold_1.safetensors: not a safetensors file"],
    ),
    # Finite weights can give infinite scores.
    Fault(
        "weights that overflow",
        SEGMENTATION,
        prepare=damage_weights(enlarge, signed=True),
        says=["*** FALLBACK *** no pass of the network (the network returns NaN or infinity)"],
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_file(check_fault: CheckFault, fault: Fault) -> None:
    check_fault(fault)


@pytest.fixture(scope="module")
def load_damaged(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Change], None]:
    """Load damaged weights into the tiny network; weights that load must be finite."""
    package = load_package(tiny_package)
    network = build_network(package)
    sound, path = package.fold_files[0].read_bytes(), tmp_path_factory.mktemp("loading") / "fold_0.safetensors"

    def load(change: Change) -> None:
        path.write_bytes(change(sound))
        load_weights(network, path)
        assert all(bool(torch.isfinite(tensor).all()) for _, tensor in iterate_tensors(network))

    return load


@given(bit=st.integers(0, 12_000) | st.integers(0, 84_000))
def test_any_flipped_bit_that_no_checksum_shows(load_damaged: Callable[[Change], None], bit: int) -> None:
    """Flipped bits are refused, or the weights are still finite. The header is the first 1.5 of 10 kB."""
    with suppress(ModelPackageError):
        load_damaged(flip_bit(bit))


def test_an_infinite_weight(load_damaged: Callable[[Change], None]) -> None:
    with pytest.raises(ModelPackageError, match=r"^fold_0\.safetensors: .* contains NaN or infinity"):
        load_damaged(lambda content: content[:-4] + struct.pack("<f", float("inf")))


# Odd scans

CASE, APICES, OUTLINE, BRAIN = "brain case", "lung apices", "body outline", "brain's uptake"
TUMOUR, ELSEWHERE, EMPTY = "tumour", "elsewhere", "empty"


@dataclass(frozen=True)
class Odd:
    """A row of a table: an unusual scan and its answer.

    Attributes:
        make: Makes the scan.
        landmark: Landmark of the region.
        is_sure: Whether the region is sure.
        mask: Whether the PET threshold's mask overlaps the reference (tumour), does not (elsewhere), or is empty.
        notices: Parts of the notices of the run record.
    """

    name: str
    make: Callable[[], Rendered]
    landmark: str = CASE
    is_sure: bool = True
    mask: str = TUMOUR
    notices: Sequence[str] = ()


def cut_neck(anatomical: float, above_mm: float = 0.0) -> Rendered:
    return odd_scans.crop_heights(odd_scans.render_neck(), -np.inf, odd_scans.height_mm(anatomical) + above_mm)


def show_abdomen() -> Rendered:
    ends = odd_scans.height_mm(BLADDER_BOTTOM), odd_scans.height_mm(LIVER_TOP)
    return odd_scans.crop_heights(odd_scans.render_body(), *ends)


def scale_pet(factor: float) -> Rendered:
    return odd_scans.change_pet(lambda suv: suv * factor)


def store_pet_in_16_bits() -> Rendered:
    return odd_scans.change_pet(lambda suv: np.minimum(suv * 4000, 32767).astype(np.int16))


def limit_ct(low_hu: int, high_hu: int) -> Rendered:
    return odd_scans.change_ct(lambda hu: np.clip(hu, low_hu, high_hu))


def drop_intercept() -> Rendered:
    return odd_scans.change_ct(lambda hu: np.maximum(hu + 1024, 0).astype(np.uint16))


# A tracer of 300 MBq in 75 kg: 4,000 Bq/ml are SUV 1.
IN_BQ = "highest value {}, expected SUV; assumed to be in Bq/ml and scaled by {} from the uptake of muscle and fat"
IN_KBQ = (
    "median uptake of muscle 3.06, fat 1.33, expected SUV of about muscle 0.7, fat 0.4; possibly kBq/ml; not scaled"
)
NO_INTERCEPT = "air near 19 HU, soft tissue near 1070 HU, fat in 1.8% of the voxels, expected -1000, and 0 to 100"
ZERO, UNSURE = "all voxels are zero; continuing with only the CT; expect an empty mask", "the region is unsure"
SCANS: Final = [
    Odd("whole body", odd_scans.render_body),
    Odd("head and neck", odd_scans.render_neck),
    Odd("abdomen", show_abdomen, OUTLINE, False, ELSEWHERE, [UNSURE]),
    Odd("cut at the mandible", lambda: cut_neck(TEETH), APICES, False),
    Odd("cut at the skull base", lambda: cut_neck(BRAIN_BOTTOM), APICES, False),
    Odd("20 mm of brain", lambda: cut_neck(BRAIN_BOTTOM, 20), APICES, False),
    Odd("PET ends at the chin", lambda: odd_scans.end_pet(CHIN), CASE, False, TUMOUR, ["covers 39% of the height"]),
    Odd(
        "PET ends at the lungs", lambda: odd_scans.end_pet(LUNG_APEX), CASE, False, EMPTY, ["covers 14% of the height"]
    ),
    Odd("prone, header says prone", lambda: odd_scans.turn_prone(labelled=True)),
    Odd("prone, header says supine", lambda: odd_scans.turn_prone(labelled=False)),
    Odd("oblique by 20 degrees", lambda: odd_scans.tilt_grids(20)),
    Odd("slices of 12 mm", lambda: odd_scans.thicken_slices(3), BRAIN),
    Odd("stored sagittally", odd_scans.store_sagittally),
    Odd("PET in Bq/ml", lambda: scale_pet(4000), notices=[IN_BQ.format(65543, "0.000263")]),
    Odd("PET in kBq/ml", lambda: scale_pet(4), notices=[IN_KBQ]),
    Odd("PET in Bq/ml, 16 bits", store_pet_in_16_bits, notices=[IN_BQ.format(32767, "0.000261")]),
    Odd("PET zero", lambda: scale_pet(0), CASE, False, EMPTY, [ZERO]),
    Odd("CT padded with -2000 HU", lambda: odd_scans.pad_ct(-2000)),
    Odd("CT padded with -3024 HU", lambda: odd_scans.pad_ct(-3024)),
    Odd("CT from -1000 to 1000 HU", lambda: limit_ct(-1000, 1000)),
    Odd("CT from -160 to 240 HU", lambda: limit_ct(-160, 240)),
    Odd("CT without intercept", drop_intercept, OUTLINE, False, TUMOUR, [NO_INTERCEPT, UNSURE]),
]


def write_scan(scan: Rendered, folder: Path) -> CaseFolder:
    case = CaseFolder(folder)
    case.ct, case.pet = scan.ct, scan.pet
    return case.write(compress=False)


def locate_mask(mask: np.ndarray, reference: np.ndarray) -> str:
    if not mask.any():
        return EMPTY
    return TUMOUR if (mask[reference > 0] > 0).any() else ELSEWHERE


@pytest.mark.slow
@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize("odd", SCANS, ids=name_of)
def test_an_odd_scan(odd: Odd, tmp_path: Path) -> None:
    """Unusual scans are answered on the CT's grid, and named if they must not be trusted."""
    scan = odd.make()
    case, path = write_scan(scan, tmp_path), tmp_path / "record.json"
    folders = ["--input", str(case.input), "--output", str(case.output), "--record", str(path)]
    assert run_main(main, ["--task", "1", "--method", "threshold", *folders]) == 0
    record, mask = read_json(path), read_volume(next(case.output.rglob("*.mha")))
    assert (record["region"]["found_by"], record["region"]["sure"]) == (odd.landmark, odd.is_sure)
    notices = [str(Finding(**notice)) for notice in record["notices"]]
    assert all(part in notice for part, notice in zip(odd.notices, notices, strict=True)), notices
    assert mask.geometry.find_differences(scan.ct.geometry) == []
    assert locate_mask(mask.array, scan.mask.array) == odd.mask


# Without image features the tiny package's heads add the intercept 0.5, 0.1 times the training median 1 of volume or SUV
# and 0.02 times the age, which is 61 SD above the mean and therefore limited to 4. With a volume of 0 the risk would be
# 0.58.
@pytest.mark.slow
@pytest.mark.parametrize(("task", "expected"), [("segmentation", {}), ("rfs", {"rfs": 0.68}), ("hpv", {"hpv": True})])
def test_an_empty_scan_in_python(
    case_folder: CaseFolder, tiny_package: Path, task: str, expected: dict[str, float]
) -> None:
    """The CT is air, the PET has an SUV of 0.2."""
    case, predictor = case_folder, Predictor(tiny_package, task=task, device="cpu")
    ct = case.ct = Volume(np.full_like(case.ct.array, -1000), case.ct.geometry)
    pet = case.pet = Volume(np.full_like(case.pet.array, 0.2), case.pet.geometry)
    case.write()
    scans = ct.array, ct.geometry, pet.array, pet.geometry
    for prediction in (predictor.predict(case.input), predictor.predict_arrays(*scans, ehr=EHR)):
        assert [notice.found for notice in prediction.record.notices] == ["neither a body nor uptake"]
        assert (prediction.record.segmented_by, prediction.record.passes_done) == (None, 0)
        assert {**prediction.risks, **prediction.classes} == pytest.approx(expected)
        assert (prediction.mask is None) == bool(expected)
        assert prediction.mask is None or not prediction.mask.any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "record", "warning"),
    [
        (
            lambda: scale_pet(4000),
            {"SUV Factor": 1 / 4000},
            "assumed to be in Bq/ml and scaled by 0.00025 with the factor of the case",
        ),
        (show_abdomen, {}, "the region is unsure"),
        (lambda: odd_scans.split_pixels(11), {}, ""),
    ],
    ids=["factor in the record", "abdomen", "over 100 million voxels"],
)
def test_four_answers_to_an_odd_scan(
    combined_package: Path, make: Callable[[], Rendered], record: dict[str, float], warning: str
) -> None:
    scan = make()
    predictor = Predictor(combined_package, edition="hecktor2026", device="cpu", passes=1)
    ehr = {key: EHR[key] for key in EHR if key != "M-stage"} | {"HPV Status": 1} | record
    prediction = predictor.predict_arrays(scan.ct.array, scan.ct.geometry, scan.pet.array, scan.pet.geometry, ehr=ehr)
    assert warning in ["", *(notice.action for notice in prediction.record.notices)]
    assert list(prediction.record.fallbacks) == []
    assert prediction.mask is not None
    assert prediction.mask.shape == scan.ct.array.shape
    assert (prediction.classes["n_stage"] == "N0") == (not (prediction.mask == 2).any())
    assert prediction.risks["rfs"] > 0
