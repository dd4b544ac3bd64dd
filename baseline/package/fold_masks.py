"""Out-of-fold masks of a finished nnU-Net training: those of its own validation, or segmented by its folds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tqdm import tqdm

from algorithm.case.notices import Notices
from algorithm.deadline import Deadline
from algorithm.network.devices import as_inference, device_named
from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.passes import Ensemble, NoPassFitsError, planned_passes, segment
from baseline.cache import cache, load_cached
from baseline.package.assemble import PackageRequest, package_training
from baseline.package.nnunet_results import NnunetResults, read_results
from baseline.package.order import trained_order
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.data_set import read_training_case
from baseline.release.keys import key_of, keys_of
from baseline.release.record import edition_of, read_preparation
from baseline.work import WorkFolders
from contract import labels
from contract.documents import Document, parse_document
from contract.errors import HecktorError, InputError
from contract.files import read_json
from contract.images.volumes import write_mask
from contract.labels import LESIONS
from contract.packages import manifest_sha256
from contract.patient import difference_of_ids, listed

# Increment when the same networks and images give other masks.
_VERSION: Final = 1
_MOST_NAMES: Final = 5
# Training has no deadline.
_NO_LIMIT_S: Final = 1e9


class NnunetSplit(Document):
    """One entry of nnU-Net's `splits_final.json`: IDs of the patients of one fold."""

    train: tuple[str, ...]
    val: tuple[str, ...]


@dataclass(frozen=True)
class FoldMasks:
    """Out-of-fold masks by patient ID, the numbers of GTVp and GTVn in them, and a line on their origin."""

    paths: Mapping[str, Path]
    lesions: tuple[int, ...]
    origin: str


def fold_masks(work: WorkFolders, request: PackageRequest, splits: Path, passes: int | None, device: str) -> FoldMasks:
    """A mask of each prepared patient by networks of a finished training that never saw the patient.

    nnU-Net's own masks in `fold_*/validation` are taken if every patient has one. Otherwise, or with `passes`, each
    patient is segmented by the checkpoint of the fold that held it out, as inference with the package would do, with
    all mirrored passes or the first `passes`. Stored masks of the same checkpoint and images are used again.

    Args:
        work: the prepared working directory.
        request: the results folder and the options of its training; its output is not used.
        splits: nnU-Net's `splits_final.json` of that training.
        passes: number of passes for each patient.
        device: device of the networks.

    Raises:
        HecktorError: the splits do not fit the results, or a patient was in the training of its fold or of all folds.
    """
    cases, folder = read_cases(work), request.nnunet[0]
    edition, task = edition_of(work), read_preparation(work).options.task
    request = replace(request, edition=edition.source, task=task)
    results = read_results(folder, None, request.checkpoint)
    folds = _read_splits(splits)
    fold_of = _held_out_folds(splits.name, folds, cases, results)
    own = _validation_masks(folder, splits.name, folds, results)
    others = {name for fold in folds for name in fold.val} - fold_of.keys()
    rest = f"; {listed(sorted(others), _MOST_NAMES)} of {splits.name} not prepared, left out" if others else ""
    if passes is None and fold_of.keys() <= own.keys():
        channels = None if request.channels is None else request.channels[0]
        lesions = None if request.labels is None else request.labels[0]
        order = trained_order(results.dataset, channels, lesions, edition.algorithms[0].channels)
        origin = f"masks of nnU-Net's own validation, {folder.resolve().name}/fold_*/validation{rest}"
        return FoldMasks({name: own[name] for name in fold_of}, order.labels[1 : 1 + len(LESIONS)], origin)
    segmenter = _Segmenter(work, work.measured / "nnunet", request, results, passes, device)
    made = segmenter.segment(cases, fold_of)
    origin = f"masks by the checkpoint of each patient's fold, {made} {'pass' if made == 1 else 'passes'} each{rest}"
    return FoldMasks({case.patient_id: segmenter.path(case) for case in cases}, labels.FOREGROUND, origin)


def _read_splits(path: Path) -> list[NnunetSplit]:
    content = read_json(path)
    if not isinstance(content, list) or not content:
        raise InputError(path.name, f"found {type(content).__name__}", "a list of folds, each with train and val")
    return [parse_document(fold, NnunetSplit, f"{path.name}[{number}]") for number, fold in enumerate(content)]


def _held_out_folds(
    name: str, folds: Sequence[NnunetSplit], cases: Sequence[ReleaseCase], results: NnunetResults
) -> dict[str, str]:
    """The fold that held each prepared patient out, by patient ID."""
    if sorted(results.checkpoints) != sorted(map(str, range(len(folds)))):
        found = f"{len(folds)} folds, and in {results.name} {', '.join(f'fold_{one}' for one in results.checkpoints)}"
        raise InputError(name, found, "one trained network for each fold")
    times = Counter(patient for fold in folds for patient in fold.val)
    wanted = [case.patient_id for case in cases]
    if absent := [patient for patient in wanted if not times[patient]]:
        expected = "each prepared patient in the val of one fold" + difference_of_ids(sorted(times), absent)
        raise InputError(name, f"no {listed(absent, _MOST_NAMES)}", expected)
    if twice := [patient for patient in wanted if times[patient] > 1]:
        raise InputError(name, f"{listed(twice, _MOST_NAMES)} in the val of several folds", "each in one")
    for number, fold in enumerate(folds):
        if seen := sorted(set(fold.train) & set(fold.val)):
            raise InputError(f"{name}[{number}]", f"{seen[0]} in train and in val", "each patient in one of them")
    return {patient: str(number) for number, fold in enumerate(folds) for patient in fold.val if patient in wanted}


def _validation_masks(folder: Path, name: str, folds: Sequence[NnunetSplit], results: NnunetResults) -> dict[str, Path]:
    """nnU-Net's own masks of the held-out patients, by patient ID.

    Raises `InputError` if nnU-Net validated a fold on patients that the splits do not hold out there.
    """
    ending = str(results.dataset.get("file_ending", ".nii.gz"))
    masks: dict[str, Path] = {}
    for number, fold in enumerate(folds):
        paths = sorted((folder / f"fold_{number}" / "validation").glob(f"*{ending}"))
        of_fold = {path.name.removesuffix(ending): path for path in paths}
        if others := sorted(of_fold.keys() - set(fold.val)):
            found = f"fold_{number}/validation has {listed(others, _MOST_NAMES)}"
            raise InputError(name, found, f"its patients in the val of fold {number}: the splits of this training")
        masks |= of_fold
    return masks


@dataclass(frozen=True)
class _Segmenter:
    """The training's networks as a package in `folder`, and beside it the masks that they make."""

    work: WorkFolders
    folder: Path
    request: PackageRequest
    results: NnunetResults
    passes: int | None
    device: str

    def path(self, case: ReleaseCase) -> Path:
        return self.folder / "masks" / f"{case.patient_id}.nii.gz"

    def segment(self, cases: Sequence[ReleaseCase], fold_of: Mapping[str, str]) -> int:
        """Write the masks that are absent or of other networks; returns the number of passes for each patient."""
        package = load_package(self._package())
        numbers = {fold: number for number, fold in enumerate(self.results.checkpoints)}
        steps = {
            fold: tuple(step for step in planned_passes(package) if step.fold == number)[: self.passes]
            for fold, number in numbers.items()
        }
        made_from = {"version": _VERSION, "package": manifest_sha256(package.root)}
        sources = {
            case.patient_id: (
                (case.ct, case.pet, *case.registered.values()),
                made_from | {"passes": str(steps[fold_of[case.patient_id]]), "suv_factor": case.suv_factor},
            )
            for case in cases
        }
        keys = keys_of(self.work, sources)
        waiting = [case for case in cases if not self._is_current(case, keys[case.patient_id])]
        if waiting:
            networks, device = Networks(package), device_named(self.device)
            for case in tqdm(waiting, desc="segment out-of-fold", unit="patient"):
                ensemble = Ensemble(networks, device, steps[fold_of[case.patient_id]])
                with as_inference(device):
                    self._write(case, ensemble, keys[case.patient_id])
        return len(next(iter(steps.values())))

    def _package(self) -> Path:
        """The package of the training, written unless it is there already."""
        results, target = self.request.nnunet[0], self.folder / "package"
        sources = [results / "plans.json", results / "dataset.json", *self.results.checkpoints.values()]
        request = replace(self.request, heads=None, output=target)
        # Where the folders lie does not count.
        request_json = {**asdict(request), "edition": Path(request.edition or "").name}
        options = {name: str(value) for name, value in request_json.items() if name not in ("nnunet", "output")}
        key, note = key_of(self.work, sources, options), self.folder / "package.json"
        if load_cached(note, key) is None or not target.is_dir():
            package_training(request)
            cache(note, key, self.results.name)
        return target

    def _note(self, case: ReleaseCase) -> Path:
        return self.folder / "notes" / f"{case.patient_id}.json"

    def _is_current(self, case: ReleaseCase, key: str) -> bool:
        return load_cached(self._note(case), key) is not None and self.path(case).is_file()

    def _write(self, case: ReleaseCase, ensemble: Ensemble, key: str) -> None:
        images, region = read_training_case(case, Notices())
        if region.is_empty:
            raise HecktorError(case.ct.name, "neither a body nor uptake in view", "a scan of head and neck")
        try:
            *_, segmentation = segment(images, region, ensemble, Deadline(_NO_LIMIT_S))
        except NoPassFitsError as reason:
            raise HecktorError(case.patient_id, f"no pass of the network fits the memory ({reason})", "one") from None
        write_mask(self.path(case), segmentation.mask_on(images.scan.geometry), images.scan.geometry)
        cache(self._note(case), key, segmentation.how)  # last: it stands for a whole mask
