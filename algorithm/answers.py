"""The answers of one case: restored mask, measured features and heads, each with its own fallback."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithm.heads.cube import absent_cube
from algorithm.heads.documents import Faults, Features, Head, SinglePatient
from algorithm.heads.feature_hook import FeatureHook, FeatureImages
from algorithm.heads.features.structure import components
from algorithm.heads.head_hook import without_user_code
from algorithm.heads.measure import clinical_features, image_features
from algorithm.heads.values import HeadAnswer, derive_stage, find_possible_classes, head_answer
from algorithm.masks.segmentation import FALLBACK_MASKS, CaseSegmentation, HeadMode, MaskSource
from algorithm.output import RunContext
from algorithm.prediction import CaseAnswers, Fallback, FallbackSource, HeadValue
from contract import labels
from contract.documents import is_member, is_number
from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from contract.errors import Finding, HecktorError, ModelPackageError
from contract.images.geometry import is_below
from contract.packages import MinLesionSizes

_Mask = npt.NDArray[np.uint8]


class _NoFeaturesError(Exception):
    """A fault left no features; the message is the reason."""


def restore(run: RunContext, segmented: CaseSegmentation) -> tuple[_Mask | None, Fallback | None]:
    """The mask on the scan's grid, None if the algorithm has none, and the fallback in place of the network, if any.

    The mask is empty if there is no segmentation or it cannot be restored.

    Raises:
        Exception: the mask cannot be restored, and an earlier one stands or the edition declares no fallbacks.
    """
    request, grid, segmentation = run.request, segmented.case.scan.geometry, segmented.segmentation
    is_fallback = request.method.segmenter == "network" and segmented.by in FALLBACK_MASKS
    fallback = Fallback(segmented.by, "no pass of the network") if is_fallback else None
    if request.algorithm.mask_spec is None:
        return None, fallback
    why = "" if request.method.segmenter else "the method makes no mask"
    if segmentation is not None:
        try:
            with run.stages("restore"):
                mask = segmentation.mask_on(grid)
            _check_mask(mask, grid.array_shape)
        except Exception as problem:
            if not request.algorithm.always_answers or _has_mask(run):
                raise
            why = f"the mask cannot be restored ({type(problem).__name__})"
            run.trace(why, problem)
        else:
            return mask, fallback
    return np.zeros(grid.array_shape, dtype=np.uint8), Fallback(MaskSource.EMPTY_MASK, why)


def _has_mask(run: RunContext) -> bool:
    """True if a mask is written that was restored."""
    answers, mask = run.output.answers, run.request.algorithm.mask_spec
    if answers is None or mask is None or answers.segmented.segmentation is None:
        return False
    return mask.name not in answers.fallbacks or answers.fallbacks[mask.name].by is not MaskSource.EMPTY_MASK


def measure(run: RunContext, segmented: CaseSegmentation) -> tuple[SinglePatient | None, str]:
    """Features of lesions and patient for the heads; None if the heads take declared values, or after a fault.

    The fault of the first measurement is returned as text if all heads have a fallback.
    Features of hooks are measured only for heads that ask an entrant's code, and fitted ones not for masks of the PET
    threshold.
    """
    heads, case, segmentation = run.request.algorithm.head_specs, segmented.case, segmented.segmentation
    if not heads or segmented.heads is HeadMode.DECLARED:
        return None, ""
    clinical = clinical_features(case.patient, run.request.edition.clinical)
    if segmentation is None or segmented.by is MaskSource.NOTHING:
        return SinglePatient(clinical, absent_cube), ""
    try:
        images = segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid, case.dose
        seen, hooked = FeatureImages(*images, clinical), dict[str, float | None]()
        for hook in run.resident.package.features if segmented.heads is HeadMode.ALL else ():
            if not (hook.folds and segmented.by in FALLBACK_MASKS):
                with run.stages(hook.title):
                    hooked |= _hooked(run, hook, seen)
        with run.stages("measure"):
            measured = image_features(*images, run.smallest_lesions)
    except Exception as problem:
        if run.has_measured or any(answer.fallback is None for answer in heads):
            raise
        fault = f"the features cannot be measured ({type(problem).__name__})"
        run.trace(fault, problem)
        return None, fault
    run.has_measured = True
    return SinglePatient({**measured, **clinical, **hooked}, seen.cubes), ""


def _hooked(run: RunContext, hook: FeatureHook, images: FeatureImages) -> Features:
    """The features of a hook, measured on the CPU if the GPU fails; if that fails too, empty with a notice."""
    try:
        if not hook.folds:
            return hook.measured(images, run.deadline)
        from algorithm.network.devices import as_inference, first_line

        device = run.resident.device
        with as_inference(device, limited=run.request.limits_card):
            try:
                return hook.measured(images, run.deadline, str(device))
            except (RuntimeError, MemoryError) as problem:
                if device.type == "cpu":
                    raise
                found = f"{device} failed ({first_line(problem)})"
            run.notices.note(Finding(hook.title, found, action="going on with the CPU"))
            return hook.measured(images, run.deadline)
    except (RuntimeError, MemoryError, ModelPackageError) as problem:
        found = "too little memory" if isinstance(problem, MemoryError) else str(problem)
        run.notices.note(Finding(hook.title, found, action="the heads use their training medians"))
        return {}


def answer(run: RunContext, segmented: CaseSegmentation) -> CaseAnswers:
    """All answers of the algorithm, by their kinds.

    Raises:
        Exception: an answer without a fallback fails.
    """
    algorithm = run.request.algorithm
    mask, of_mask = restore(run, segmented)
    measured = measure(run, segmented)
    values: dict[str, HeadValue] = {}
    fallbacks: dict[str, Fallback] = {}
    notes: list[str] = []
    probabilities: dict[str, float] = {}
    if algorithm.mask_spec is not None and of_mask is not None:
        fallbacks[algorithm.mask_spec.name] = of_mask
    possible = _classes_left(algorithm.head_specs, segmented, mask, run.smallest_lesions)
    for declared in algorithm.head_specs:
        with run.stages("head"):
            left = possible.get(declared.name, declared.classes)
            if len(left) == 1:
                values[declared.name] = left[0]
                continue
            excluded = tuple(value for value in declared.classes if value not in left)
            try:
                given, lines = _by_head(run, declared, segmented.heads, measured, excluded)
            except Exception as problem:
                if not _may_fall_back(declared, problem):
                    raise
                value, fallback = _fall_back(run, declared, measured[0], excluded, problem)
                values[declared.name], fallbacks[declared.name] = value, fallback
            else:
                values[declared.name] = given.value
                if algorithm.mask_spec is None and of_mask is not None:
                    fallbacks[declared.name] = of_mask  # the head saw another mask than the network's
                notes += lines
                if given.probability is not None:
                    probabilities[declared.name] = given.probability
    return CaseAnswers(segmented, mask, values, fallbacks, tuple(notes), probabilities)


def _check_mask(mask: _Mask, shape: tuple[int, ...]) -> None:
    if mask.shape != shape or mask.max(initial=0) > max(labels.FOREGROUND):
        raise ValueError(f"mask of shape {mask.shape} with labels up to {mask.max(initial=0)}")


def _classes_left(
    heads: Sequence[AnswerSpec], segmented: CaseSegmentation, mask: _Mask | None, smallest: MinLesionSizes
) -> dict[str, tuple[ClassValue, ...]]:
    """The classes that the written mask leaves to each class answer on which it has a bearing, by name."""
    declared = [one for one in heads if one.without or one.rule]
    if mask is None or not declared:
        return {}
    grid, has_segmentation = segmented.case.scan.geometry, segmented.segmentation is not None
    absent = {
        labels.NAMES[label]
        for label in labels.FOREGROUND
        if all(is_below(part.volume_ml, smallest.get_ml(label)) for part in components(mask == label, grid))
    }
    return {one.name: find_possible_classes(one, absent, segmented=has_segmentation) for one in declared}


def _by_head(
    run: RunContext,
    declared: AnswerSpec,
    heads: HeadMode,
    measured: tuple[SinglePatient | None, str],
    excluded: Collection[ClassValue],
) -> tuple[HeadAnswer, list[str]]:
    """The head's answer, and lines for the log on what is missing and what its days mean."""
    patient, fault_of_features = measured
    if patient is None:
        raise _NoFeaturesError(fault_of_features)
    head, lines, faults = run.head(declared), list[str](), Faults()
    if heads is not HeadMode.ALL:
        head = without_user_code(head)
    given = head_answer(declared, head, patient.features, patient.cubes, excluded=excluded, faults=faults)
    for fault in faults:
        finding = Finding(fault.what, fault.found, fault.expected, f"the ensemble of {declared.name} goes without it")
        if heads is HeadMode.ALL:
            run.notices.note(finding)
        else:  # a better answer may have it
            lines.append(str(finding))
    if not _is_valid(declared, given.value):
        raise ModelPackageError(f"head {declared.head!r}", f"gives {given.value!r}", "a possible answer")
    lines += _missing(declared.name, head, patient.features)
    return given, [*lines, *([given.note] if given.note else [])]


def _missing(name: str, head: Head, features: Features) -> Iterator[str]:
    """A line for each missing member of an ensemble, and one for all missing features."""
    for expert in head.unavailable(features):
        yield f"{name}: all features of expert {expert!r} are missing, so it is left out"
    missing = head.missing(features)
    if len(missing) == 1:
        yield f"{name}: {missing[0].feature} is missing; instead its training median {missing[0].fill:g} is used"
    elif missing:
        medians = ", ".join(f"{term.feature} {term.fill:g}" for term in missing)
        yield f"{name}: {len(missing)} features are missing; instead their training medians are used: {medians}"


def _may_fall_back(declared: AnswerSpec, problem: Exception) -> bool:
    """True after a fault of the head or a bug, if a fallback is declared; a bad case stays an error."""
    is_bad_case = isinstance(problem, HecktorError) and not isinstance(problem, ModelPackageError)
    return declared.fallback is not None and not is_bad_case


def _fall_back(
    run: RunContext,
    declared: AnswerSpec,
    patient: SinglePatient | None,
    excluded: Collection[ClassValue],
    problem: Exception,
) -> tuple[HeadValue, Fallback]:
    """The first possible value: from the rule, the training, the declaration, or any remaining class."""
    sources: list[tuple[FallbackSource, Callable[[], Any]]] = [
        (
            "rule",
            lambda: derive_stage(declared.rule, patient.features) if declared.rule and patient is not None else None,
        ),
        ("training", lambda: run.resident.manifest.fallbacks.get(declared.head)),
        ("declaration", lambda: declared.fallback),
        ("declaration", lambda: next(value for value in declared.classes if value not in excluded)),
    ]
    if isinstance(problem, HecktorError | _NoFeaturesError):
        why = str(problem)
    else:
        why = type(problem).__name__
        run.trace(f"{declared.name}: the head fails ({why})", problem)
    for source, value_of in sources:
        value = value_of()
        if _is_valid(declared, value) and value not in excluded:
            break
        if value is not None and value not in excluded:
            run.trace(f"{declared.name}: {value!r} by the {source} is not a possible answer")
    return value, Fallback(source, why)


def _is_valid(declared: AnswerSpec, value: object) -> bool:
    """True if the answer may have this value."""
    if declared.kind == "class":
        return is_member(value, declared.classes)
    return is_number(value) and (declared.direction == "risk" or float(value) > 0)  # type: ignore[arg-type]
