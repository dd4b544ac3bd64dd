"""`hecktor check-model`: compare the masks of a model package with the masks of `nnUNetv2_predict`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from baseline.package.numbering import parse_lesion_numbers, parse_named_numbers, read_numbering
from contract import labels
from contract.code import Code
from contract.errors import HecktorError, InputError
from contract.io.files import read_json
from contract.options import Parser, add_code_option, require_folders, require_paths, whole_number
from contract.platform import ONE_FILE_SUFFIXES

if TYPE_CHECKING:
    from algorithm.case.inputs import BatchCase

# Two implementations of the same arithmetic differ in a few voxels whose labels are almost tied.
MIN_DICE: Final = 0.99
_DATASET: Final = "dataset.json"
_REASONS: Final = f"""\
A Dice below {MIN_DICE} has one of these reasons:
- nnUNetv2_predict ran with other folds, another checkpoint, --disable_tta or another step size than the package;
- the package was made with --postprocessing, or with a --normalised-over that does not match the training images;
- with --normalised-over region, the cases have another spacing than the training images: nnU-Net resamples them with
  splines, the package as hecktor train prepare does;
- --passes limits the network;
- after a few training steps the logits of the labels are almost equal, so that rounding can decide.
"""


@dataclass(frozen=True)
class CheckedCase:
    """The Dice of each lesion label between two masks of a case; None for a label that neither mask has."""

    patient_id: str
    dice: Mapping[str, float | None]


@dataclass(frozen=True)
class ModelCheck:
    """The package and the masks to compare, and the options of the prediction.

    Attributes:
        package: Model package, a folder or `.tar.gz`.
        cases: Folder with nnU-Net's names CASE_0000.
        nnunet_masks: Folder with a mask CASE of each case, written by `nnUNetv2_predict`.
        channels: Numbers of CT and PET in the training; None reads `dataset.json` next to the masks.
        lesions: Numbers of GTVp and GTVn in the training, in the same way.
        device: `auto`, `cpu` or `cuda`.
        passes: Maximum number of passes of the network; None makes all.
        code: Folders of user code that the package names.
    """

    package: Path
    cases: Path
    nnunet_masks: Path
    channels: Mapping[str, int] | None = None
    lesions: tuple[int, ...] | None = None
    device: str = "auto"
    passes: int | None = None
    code: tuple[Path, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Print the Dice of each case; return 0 if each Dice is at least `MIN_DICE`, otherwise 1."""
    arguments = _make_parser().parse_args(argv)
    require_paths(arguments, "--package")
    require_folders(arguments, "--cases", "--nnunet-masks", "--code")
    Code.from_folders(arguments.code)
    check = ModelCheck(
        package=arguments.package,
        cases=arguments.cases,
        nnunet_masks=arguments.nnunet_masks,
        channels=arguments.channels,
        lesions=arguments.labels,
        device=arguments.device,
        passes=arguments.passes,
        code=tuple(arguments.code),
    )
    rows: list[CheckedCase] = []
    for row in check_model(check):
        if not rows:
            sys.stdout.write(_format_line("case", labels.LESIONS))
        rows.append(row)
        sys.stdout.write(_format_line(row.patient_id, [_format_dice(row.dice[name]) for name in labels.LESIONS]))
        sys.stdout.flush()
    return _conclude(rows)


def check_model(check: ModelCheck) -> Iterator[CheckedCase]:
    """Run the packaged model on each whole scan and yield the agreement of its mask with nnU-Net's.

    Raises:
        HecktorError: A case has no mask of nnU-Net, a file cannot be read, or two grids differ.
    """
    from algorithm.case.inputs import find_nnunet_cases  # imports SimpleITK

    numbering = read_numbering(_read_dataset(check.nnunet_masks), check.channels, check.lesions)
    if "CT" not in numbering.channels:
        raise InputError("--cases", "images of a training that sees only the PET", "a training with the CT")
    ct_number = numbering.channels["CT"]
    # A training that sees only the CT has no PET among its images; the algorithm reads one next to the CT.
    pet_number = numbering.channels.get("PET", ct_number + 1)
    cases = find_nnunet_cases(check.cases, check.cases, ct_number, pet_number)
    if not cases:
        expected = f"nnU-Net's names, CASE_{ct_number:04}.nii.gz for the CT"
        raise InputError("--cases", f"no cases in {check.cases.absolute()}", expected)
    masks = [_find_mask(check.nnunet_masks, case.patient_id) for case in cases]
    yield from _compare(check, list(zip(cases, masks, strict=True)), numbering.lesions)


def _compare(
    check: ModelCheck, cases: Sequence[tuple[BatchCase, Path]], lesions: Sequence[int]
) -> Iterator[CheckedCase]:
    """Predict each case, which comes with the path of nnU-Net's mask; `lesions` are nnU-Net's numbers."""
    from algorithm.predictor import Predictor
    from contract.images.volumes import read_volume
    from contract.packages import open_package

    with open_package(check.package) as folder:
        # Other tiles than nnU-Net's would give another mask, especially with a network after a short training.
        predictor = Predictor(folder, device=check.device, passes=check.passes, code=check.code, whole_scan=True)
        for case, path in cases:
            nnunet_mask = read_volume(path)
            prediction = predictor.predict_files(case.ct, case.pet)
            if differences := nnunet_mask.geometry.find_differences(prediction.geometry):
                raise InputError(path.name, differences[0], f"the grid of {case.ct.name}")
            if prediction.mask is None or prediction.record.segmented_by != "network":
                by = prediction.record.segmented_by
                raise HecktorError(case.patient_id, f"a mask from {by or 'a fallback'}", "a mask from the network")
            dice = {
                labels.NAMES[label]: compute_dice(prediction.mask == label, nnunet_mask.array == number)
                for label, number in zip(labels.FOREGROUND, lesions, strict=True)
            }
            yield CheckedCase(case.patient_id, dice)


def compute_dice(first: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]) -> float | None:
    """Compute the Dice coefficient of two masks; None if both are empty."""
    total = np.count_nonzero(first) + np.count_nonzero(second)
    return 2 * np.count_nonzero(first & second) / total if total else None


def _read_dataset(folder: Path) -> dict[str, Any]:
    """Read `dataset.json`, which `nnUNetv2_predict` writes next to its masks."""
    path = folder / _DATASET
    if not path.is_file():
        raise InputError("--nnunet-masks", f"no {_DATASET} in {folder.absolute()}", "a folder of nnUNetv2_predict")
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(_DATASET, f"found a {type(content).__name__}", "an object")
    return content


def _find_mask(folder: Path, patient_id: str) -> Path:
    """Find nnU-Net's mask of a case; raise `InputError` if it does not exist, or exists in two formats."""
    paths = [folder / f"{patient_id}{suffix}" for suffix in ONE_FILE_SUFFIXES]
    masks = [path for path in paths if path.is_file()]
    if len(masks) == 1:
        return masks[0]
    actual = f"{masks[0].name} and {masks[1].name}" if masks else f"no mask of {patient_id}"
    raise InputError("--nnunet-masks", actual, f"{patient_id}.nii.gz for each case of --cases")


def _conclude(rows: Sequence[CheckedCase]) -> int:
    """Print the lowest Dice and, if it is too low, the possible reasons; return the exit status."""
    values = [(value, row.patient_id, name) for row in rows for name, value in row.dice.items() if value is not None]
    if not values:
        raise HecktorError(
            "--nnunet-masks", "no lesion in any mask", "a case with lesions, since nothing is compared without them"
        )
    lowest, patient_id, name = min(values)
    sys.stdout.write(f"lowest Dice {lowest:.4f}: {name} of {patient_id}; cases: {len(rows)}\n")
    if lowest >= MIN_DICE:
        return 0
    sys.stdout.write(_REASONS)
    return 1


def _format_line(case: str, columns: Sequence[str]) -> str:
    return f"{case:<24}{''.join(f'{text:>8}' for text in columns)}\n"


def _format_dice(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor check-model",
        description="Compare the masks of a model package and of nnUNetv2_predict: the Dice of each case.",
    )
    parser.add_argument("--package", type=Path, required=True, help="model package, a folder or .tar.gz")
    parser.add_argument(
        "--cases", type=Path, required=True, metavar="DIR", help="images with nnU-Net's names, such as imagesTs"
    )
    parser.add_argument(
        "--nnunet-masks", type=Path, required=True, metavar="DIR", help="output folder of nnUNetv2_predict for --cases"
    )
    parser.add_argument(
        "--channels",
        type=parse_named_numbers,
        metavar="CT=0,PET=1",
        help="numbers of the channels, if dataset.json has other names, as for `hecktor package`",
    )
    parser.add_argument(
        "--labels",
        type=parse_lesion_numbers,
        metavar="GTVp=1,GTVn=2",
        help="numbers of the labels, if dataset.json has other names, as for `hecktor package`",
    )
    parser.add_argument("--passes", type=whole_number(1), help="maximum number of passes (default: all)")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="device of the networks (default: %(default)s)",
    )
    add_code_option(parser, " that the model package names")
    return parser
