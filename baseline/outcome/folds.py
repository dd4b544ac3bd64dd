"""The outcome network over the training's folds: resumed, measured out-of-fold, ready for the package."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from algorithm.heads.documents import Features
from algorithm.outcome.plan import OutcomeFolds, OutcomePlan
from baseline.cache import cache, key_of, load_cached
from baseline.network.nnunet import explained_failures
from baseline.network.plans import OUTCOME_PRESETS, OutcomePreset
from baseline.release.cases import ReleaseCase, head_answers, read_cases
from baseline.release.record import edition_of
from baseline.release.splits import Splits, read_splits
from baseline.work import WorkFolders
from contract.documents import Document, read_document
from contract.errors import HecktorError
from contract.files import atomic_path, write_json

if TYPE_CHECKING:  # imports torch, which only the training needs
    import torch

    from baseline.outcome.cohort import OutcomeCohort

# Increment when the same images and masks give other networks.
_VERSION: Final = 1
# Fewer cannot be normalised over a batch.
_LEAST_PATIENTS: Final = 4
_IF_FULL: Final = "a GPU or RAM with more free memory, or --size small (`train all`: --outcome-network small)"
_IF_LOST: Final = "a device that answers; the same command goes on with the unfinished folds"
_Show = Callable[[str], object]


class _Result(Document):
    """Plan and out-of-fold features of the trained folds; `key` is a digest of everything that they are made from."""

    key: str
    preset: str
    plan: OutcomePlan
    features: Mapping[str, Features]


class TooFewOutcomesError(HecktorError):
    """The release has too few patients or outcomes for the outcome network."""


@dataclass(frozen=True)
class OutcomeFolders:
    """Files of the outcome network, beside the out-of-fold masks that it sees."""

    root: Path

    @classmethod
    def of(cls, work: WorkFolders) -> OutcomeFolders:
        return cls(work.masks.parent / "outcome")

    @property
    def result(self) -> Path:
        """Plan and out-of-fold features; written once all folds are trained."""
        return self.root / "outcome.json"

    def weights(self, fold: int) -> Path:
        return self.root / f"fold_{fold}.safetensors"

    def record(self, fold: int) -> Path:
        """A fold's features of its held-out patients; written after the weights."""
        return self.root / f"fold_{fold}.json"


def train_outcome(
    work: WorkFolders, preset: str, device: str = "auto", threads: int = 1, show: _Show = lambda _: None
) -> dict[str, Features]:
    """Train the outcome network over all folds and return its out-of-fold features by patient ID.

    Finished folds of the same masks, images and outcomes are skipped. Answers that cannot be learnt are left out, with
    a line to `show`.

    Raises:
        TooFewOutcomesError: no answer can be learnt, or a fold has too few patients.
        HecktorError: no mask of a patient, or the device does not answer, is full or is lost.
    """
    from algorithm.network.devices import prepared_device
    from baseline.outcome.cohort import plan_outcome, read_cohort

    cases, splits, edition = read_cases(work), read_splits(work), edition_of(work)
    size = OUTCOME_PRESETS[preset]
    _check_masks(work, cases)
    plan, why_not = plan_outcome(edition, cases, splits, size)
    for name, reason in why_not.items():
        show(f"outcome network without {name}: {reason}")
    if plan is None:
        raise TooFewOutcomesError("outcome network", "no outcome to learn from", "patients with outcomes")
    folders, key = OutcomeFolders.of(work), _key(work, cases, splits, plan, preset)
    waiting = [n for n in range(len(splits.folds)) if not _is_done(folders, n, key)]
    if waiting:
        run = _Training(splits, plan, size, prepared_device(device), threads)
        with explained_failures("outcome network", _IF_FULL, _IF_LOST):
            cohort = read_cohort(work, cases, edition, plan, threads)
        _check_size(cohort, splits)
        folders.result.unlink(missing_ok=True)  # an interruption leaves networks of two sizes or inputs
        for fold in waiting:
            with explained_failures(f"outcome network, fold {fold}", _IF_FULL, _IF_LOST):
                _train(folders, fold, key, cohort, run, show)
    features: dict[str, Features] = {case.patient_id: dict.fromkeys(plan.features) for case in cases}
    for fold in range(len(splits.folds)):
        features |= load_cached(folders.record(fold), key)["features"]
    write_json(folders.result, _Result(key=key, preset=preset, plan=plan, features=features).model_dump(mode="json"))
    return features


@dataclass(frozen=True)
class _Training:
    splits: Splits
    plan: OutcomePlan
    preset: OutcomePreset
    device: torch.device
    threads: int


def _train(folders: OutcomeFolders, fold: int, key: str, cohort: OutcomeCohort, run: _Training, show: _Show) -> None:
    import torch
    from safetensors.torch import save

    from baseline.outcome.trainer import FoldJob, predicted, train_fold

    torch.set_num_threads(run.threads)
    begun, losses = time.monotonic(), list[float]()
    held = set(run.splits.folds[fold])
    train = torch.tensor([n for n, name in enumerate(cohort.ids) if name not in held])
    rest = torch.tensor([n for n, name in enumerate(cohort.ids) if name in held], dtype=torch.int64)
    job = FoldJob(run.plan, run.preset, train, run.splits.seed + fold, run.device)
    network = train_fold(cohort, job, losses.append)
    answers = predicted(network, cohort, rest, job).tolist()
    rows = zip(rest.tolist(), answers, strict=True)
    features = {cohort.ids[number]: dict(zip(run.plan.features, row, strict=True)) for number, row in rows}
    folders.record(fold).unlink(missing_ok=True)  # of other weights
    with atomic_path(folders.weights(fold)) as partial:
        # `save_file` ignores the umask.
        partial.write_bytes(save({name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}))
    seconds = round(time.monotonic() - begun, 1)
    cache(folders.record(fold), key, {"seconds": seconds, "losses": losses, "features": features})
    show(f"outcome network, fold {fold}: loss {losses[0]:.3f} to {losses[-1]:.3f} in {seconds:.0f} s")


def outcome_features(work: WorkFolders, cases: Sequence[ReleaseCase]) -> dict[str, Features]:
    """Out-of-fold features of the outcome network by patient ID, empty if none was trained.

    Raises:
        HecktorError: it was trained on other masks, images or outcomes.
    """
    content = _result(work)
    if content is None:
        return {}
    if content.key != _key(work, cases, read_splits(work), content.plan, content.preset):
        folder = OutcomeFolders.of(work).root
        expected = f"`hecktor train outcome{work.name_option}` again (or remove {folder.parent.name}/{folder.name})"
        raise HecktorError("outcome network", "trained on other masks, images or outcomes", expected)
    return dict(content.features)


def trained_outcome(work: WorkFolders) -> OutcomeFolds | None:
    """The trained networks for the package, None if there are none."""
    content, folders = _result(work), OutcomeFolders.of(work)
    if content is None:
        return None
    files = tuple(folders.weights(fold) for fold in range(len(read_splits(work).folds)))
    return OutcomeFolds(content.plan, files)


def outcome_stamp(work: WorkFolders) -> dict[str, Any]:
    """The outcome network's part of the heads' key; empty if no outcome network was trained."""
    content = _result(work)
    return {} if content is None else {"outcome_network": content.key}


def _result(work: WorkFolders) -> _Result | None:
    path = OutcomeFolders.of(work).result
    return read_document(path, _Result) if path.is_file() else None


def _is_done(folders: OutcomeFolders, fold: int, key: str) -> bool:
    return folders.weights(fold).is_file() and load_cached(folders.record(fold), key) is not None


def _check_masks(work: WorkFolders, cases: Sequence[ReleaseCase]) -> None:
    missing = [case.patient_id for case in cases if not work.mask(case.patient_id).is_file()]
    if missing:
        expected = f"`hecktor train postprocess{work.name_option}` before"
        raise HecktorError("outcome network", f"no out-of-fold mask of {missing[0]}", expected)


def _check_size(cohort: OutcomeCohort, splits: Splits) -> None:
    least = min(len(set(cohort.ids) - set(fold)) for fold in splits.folds)
    if least < _LEAST_PATIENTS:
        found = f"{least} training patients with a tumour and a PET in a fold"
        raise TooFewOutcomesError("outcome network", found, f"at least {_LEAST_PATIENTS}")


def _key(work: WorkFolders, cases: Sequence[ReleaseCase], splits: Splits, plan: OutcomePlan, preset: str) -> str:
    """A digest of everything that the networks are made from."""
    from baseline.release.data_set import CHANNELS, image_path  # imports torch

    images = [image_path(work.raw, case, number) for case in cases for number in range(len(CHANNELS))]
    answers = head_answers(edition_of(work))
    columns = [column for answer in answers for column in answer.columns.values()]
    patients = [
        [case.patient_id, case.patient.as_json(), *(str(case.outcomes.get(column)) for column in columns)]
        for case in cases
    ]
    made_from = {"plan": plan.model_dump(mode="json"), "preset": asdict(OUTCOME_PRESETS[preset]), "seed": splits.seed}
    made_from |= {"folds": splits.folds, "patients": patients, "version": _VERSION}
    return key_of((*images, *(work.mask(case.patient_id) for case in cases)), made_from)
