"""Gain of training with misaligned and absent PETs, on cases whose PET is misaligned or absent.

::

    hecktor train prepare --release COHORT --work WORK
    python -m benchmarks.studies.pet_augmentation --work WORK --output OUT

trains three small networks of the preset `short` on the same patients with the same seed: without augmentation of the
PET, with misaligned PETs, and with absent PETs. Each segments the same held-out patients three times: as they are, with
the PET shifted by 6 to 10 mm in plane, and without a PET. Results are in OUT/results.json, and the table of
docs/training.md is printed. An interrupted training continues. `--variant NAME` trains one network and ends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from baseline.network.nnunet import Machine, train_network
from baseline.network.planning import plan_and_preprocess
from baseline.network.plans import NetworkPlan
from baseline.work import CONFIGURATION, WorkFolders
from contract import labels
from contract.errors import InputError, run_main
from contract.files import read_json, write_json
from contract.images.volumes import read_volume
from contract.markdown import table
from contract.options import whole_number

PROBABILITY: Final = 0.3
VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "plain": {},
    "misaligned": {"misalign": PROBABILITY},
    "dropout": {"pet_dropout": PROBABILITY},
}
SHIFT_MM: Final = (6.0, 10.0)
_BOOTSTRAPS: Final = 1000
_SEED: Final = 14
_Array = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.uint8]
# 2 |A and B| and |A| + |B| of each label in voxels.
Overlap = dict[str, tuple[int, int]]


def main(argv: Sequence[str] | None = None) -> int:
    """Train the networks that remain; unless one variant is named, measure them and print the table."""
    options = _parser().parse_args(argv)
    data = WorkFolders(options.output.resolve() / "data")
    train, held_out = chosen(options.work / "cases.json", options.train, options.held_out)
    plan = NetworkPlan(epochs=options.epochs)
    prepare(WorkFolders(options.work.resolve()), data, plan, (train, held_out))
    names = [options.variant] if options.variant else list(VARIANTS)
    finals = {name: train_variant(data, name, plan) for name in names}
    if options.variant is None:
        results = {name: measure(data, name, final, held_out) for name, final in finals.items()}
        write_json(options.output / "results.json", {"train": train, "held_out": held_out, "overlaps": results})
        sys.stdout.write(f"{as_table(results)}\n")
    return 0


def chosen(cases: Path, train: int, held_out: int) -> tuple[list[str], list[str]]:
    """Patients of the training and held-out ones, drawn at random from those with a reference."""
    with_mask = [case["patient_id"] for case in read_json(cases) if case["mask"] is not None]
    if len(with_mask) < train + held_out:
        raise InputError(cases.name, f"{len(with_mask)} patients with a reference", f"{train + held_out}")
    drawn = [str(name) for name in np.random.default_rng(_SEED).permutation(with_mask)[: train + held_out]]
    return sorted(drawn[:train]), sorted(drawn[train:])


def prepare(source: WorkFolders, data: WorkFolders, plan: NetworkPlan, split: tuple[list[str], list[str]]) -> None:
    """Link the prepared images of both groups and let nnU-Net plan and preprocess them, once for all variants.

    The held-out patients are nnU-Net's validation, which chooses nothing: the last checkpoint is used.
    """
    if data.plan_json.is_file():
        return
    train, held_out = split
    for folder, ends in (("imagesTr", ("_0000", "_0001")), ("labelsTr", ("",))):
        (data.raw / folder).mkdir(parents=True, exist_ok=True)
        for name in (f"{patient}{end}.nii.gz" for patient in (*train, *held_out) for end in ends):
            (data.raw / folder / name).unlink(missing_ok=True)
            (data.raw / folder / name).symlink_to(source.raw / folder / name)
    write_json(data.raw / "dataset.json", read_json(source.raw / "dataset.json") | {"numTraining": len(train)})
    plan_and_preprocess(data, plan, [{"train": train, "val": held_out}], jobs=1)
    write_json(data.plan_json, {"split": split})


def train_variant(data: WorkFolders, name: str, plan: NetworkPlan) -> Path:
    """Train one network on one core, or continue; returns its final checkpoint."""
    work = WorkFolders(data.root.parent / name)
    work.nnunet.mkdir(parents=True, exist_ok=True)
    for shared in ("raw", "preprocessed"):
        if not (work.nnunet / shared).exists():
            (work.nnunet / shared).symlink_to(data.nnunet / shared)
    return train_network(work, plan.changed(**VARIANTS[name]), 0, "unet", Machine(), seed=_SEED)


def measure(data: WorkFolders, name: str, final: Path, held_out: Sequence[str]) -> dict[str, list[Overlap]]:
    """The overlaps of each held-out patient under each condition, by one pass without mirroring."""
    from algorithm.network.networks import Networks
    from algorithm.network.package import load_package
    from baseline.package.export import export_package

    bare = data.root.parent / "packages" / name
    bare.parent.mkdir(exist_ok=True)
    checkpoints, description = {CONFIGURATION: [final]}, {"name": name, "purpose": "study"}
    networks = Networks(load_package(export_package(bare, read_json(data.plans), checkpoints, {}, description)))
    return {
        condition: [overlap_of(data, patient, networks, change) for patient in held_out]
        for condition, change in CONDITIONS.items()
    }


def overlap_of(
    data: WorkFolders, patient: str, networks: Any, change: Callable[[_Array, tuple[float, ...], str], _Array]
) -> Overlap:
    """Segment one patient with the PET changed, and compare with the prepared reference."""
    import torch

    from algorithm.deadline import Deadline
    from algorithm.network.images import MemberImage
    from algorithm.network.passes import Passes, planned_passes
    from algorithm.network.segment import normalise

    ct, pet = (read_volume(data.raw / "imagesTr" / f"{patient}_{n:04d}.nii.gz", "float32") for n in (0, 1))
    changed = change(pet.array, pet.geometry.spacing_mm, patient)
    passes = planned_passes(networks.package)
    channels = normalise((ct.array, changed), networks.package)
    progress = Passes(MemberImage.of(channels), passes, networks, Deadline(1e9), torch.device("cpu")).run()
    mask = progress.logits.argmax(0).astype(np.uint8)
    return overlap(read_volume(data.raw / "labelsTr" / f"{patient}.nii.gz", np.uint8).array, mask)


def overlap(reference: _Mask, mask: _Mask) -> Overlap:
    """2 |A and B| and |A| + |B| of each label."""
    found = {}
    for label in labels.FOREGROUND:
        a, b = reference == label, mask == label
        found[labels.NAMES[label]] = (2 * int((a & b).sum()), int(a.sum()) + int(b.sum()))
    return found


def shifted(pet: _Array, spacing_mm: tuple[float, ...], patient: str) -> _Array:
    """The PET moved in plane by 6 to 10 mm in a direction of the patient's own, the same for every network."""
    rng = np.random.default_rng([_SEED, *patient.encode()])
    length, angle = rng.uniform(*SHIFT_MM), rng.uniform(0, 2 * np.pi)
    x, y = length * np.cos(angle) / spacing_mm[0], length * np.sin(angle) / spacing_mm[1]
    moved: _Array = ndimage.shift(pet, (0, y, x), order=1, mode="constant", cval=0.0)
    return moved


CONDITIONS: Final[Mapping[str, Callable[[_Array, tuple[float, ...], str], _Array]]] = {
    "as they are": lambda pet, *_: pet,
    "PET shifted": shifted,
    "no PET": lambda pet, *_: np.zeros_like(pet),
}


def as_table(results: Mapping[str, Mapping[str, Sequence[Overlap]]]) -> str:
    """Mean Dice of GTVp and aggregated Dice of GTVn, with the difference from `plain` and its 95% interval."""
    rows = []
    for condition in CONDITIONS:
        plain = results["plain"][condition]
        for name, by_condition in results.items():
            cells = []
            for score in (mean_primary, aggregated_nodes):
                text = f"{score(by_condition[condition]):.3f}"
                if name != "plain":
                    low, high = interval(plain, by_condition[condition], score)
                    gain = score(by_condition[condition]) - score(plain)
                    text += f" ({gain:+.3f}, {low:+.3f} to {high:+.3f})"
                cells.append(text)
            rows.append([condition, name, *cells])
    return table(["held-out cases", "training", "GTVp mean DSC", "GTVn DSCagg"], rows)


def mean_primary(overlaps: Sequence[Overlap]) -> float:
    """Mean Dice of GTVp over the patients in whom reference or mask has one."""
    pairs = [one["GTVp"] for one in overlaps if one["GTVp"][1]]
    return float(np.mean([both / total for both, total in pairs])) if pairs else float("nan")


def aggregated_nodes(overlaps: Sequence[Overlap]) -> float:
    """Aggregated Dice of GTVn."""
    total = sum(one["GTVn"][1] for one in overlaps)
    return sum(one["GTVn"][0] for one in overlaps) / total if total else float("nan")


def interval(
    plain: Sequence[Overlap], other: Sequence[Overlap], score: Callable[[Sequence[Overlap]], float]
) -> tuple[float, float]:
    """95% percentile interval of the difference over bootstrap samples of patients, paired."""
    rng = np.random.default_rng(_SEED)
    gains = []
    for _ in range(_BOOTSTRAPS):
        drawn = rng.integers(0, len(plain), len(plain))
        gains.append(score([other[i] for i in drawn]) - score([plain[i] for i in drawn]))
    low, high = np.nanpercentile(gains, (2.5, 97.5))
    return float(low), float(high)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.pet_augmentation", description=__doc__)
    add = parser.add_argument
    add("--work", type=Path, required=True, help="working directory with prepared patients")
    add("--output", type=Path, required=True, help="folder of the study")
    add("--train", type=whole_number(2), default=50, help="training patients (default: %(default)s)")
    add("--held-out", type=whole_number(1), default=20, help="held-out patients (default: %(default)s)")
    add("--epochs", type=whole_number(1), default=10, help="epochs of each network (default: %(default)s)")
    add("--variant", choices=tuple(VARIANTS), help="train this network and end")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
