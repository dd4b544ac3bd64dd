"""Compute the answers of one case: restore the mask, measure the features, and predict with the heads.

Each of the three steps has a fallback, so that a failure changes only the answers that depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import Case
from algorithm.heads.documents import Faults, Features, Head, SinglePatient
from algorithm.heads.feature_hook import FeatureHook, FeatureImages, make_empty_cube
from algorithm.heads.head_hook import disable_user_code
from algorithm.heads.measure import clinical_features, measure_image_features
from algorithm.heads.structure import find_components
from algorithm.heads.values import compute_head_answer, derive_stage, find_possible_classes
from algorithm.masks.segmentation import FALLBACK_MASKS, CaseSegmentation, MaskSource, Segmentation
from algorithm.output import CaseAnswers, Fallback, FallbackSource, HeadValue, RunContext
from contract import labels
from contract.documents import is_member, is_number
from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from contract.errors import Finding, HecktorError, ModelPackageError
from contract.images.geometry import Geometry, is_below
from contract.packages import MinLesionSizes

_Mask = npt.NDArray[np.uint8]
NOT_SEGMENTED: Final = "the case ended before its segmentation"
NOT_MEASURED: Final = "the case ended before a head answered"


@dataclass(frozen=True)
class RestoredMask:
    """The mask on the grid of the scan, and the fallback that replaced the network's mask.

    The mask is None for an algorithm without a mask among its answers. The fallback is None if the network's mask was
    restored.
    """

    mask: _Mask | None
    fallback: Fallback | None


@dataclass(frozen=True)
class NoFeatures:
    """The reason why a case has no features."""

    reason: str


@dataclass(frozen=True)
class _HeadResult:
    """The value of one risk or class.

    Attributes:
        value: The risk, the days or the class.
        fallback: The fallback that gave the value; None if the head gave it, or if the mask left only one class.
        notes: Lines for the log.
        probability: Calibrated probability of the second of two classes; None if the head gives no probability.
    """

    value: HeadValue
    fallback: Fallback | None = None
    notes: tuple[str, ...] = ()
    probability: float | None = None


def compute_answers(run: RunContext, segmentation: CaseSegmentation, *, with_user_code: bool = False) -> CaseAnswers:
    """Compute all answers of the algorithm from one segmentation.

    Args:
        run: The case.
        segmentation: The segmentation from which the mask and the features come.
        with_user_code: Whether custom features are measured and custom heads predict.

    Raises:
        Exception: An answer without a fallback fails.
    """
    restored = restore(run, segmentation)
    patient = measure(run, segmentation, with_user_code=with_user_code)
    specs = run.request.algorithm.head_specs
    possible_classes = _find_possible_classes(specs, segmentation, restored.mask, run.min_lesion_sizes)
    results = {}
    for spec in specs:
        with run.stages("head"):
            possible = possible_classes.get(spec.name, spec.classes)
            results[spec.name] = _answer_head(run, spec, patient, possible, with_user_code=with_user_code)
    return _collect(run, segmentation, restored, results)


def declare_answers(run: RunContext, segmentation: CaseSegmentation) -> CaseAnswers:
    """Compute the mask, and give each risk and class a fallback value that needs no features.

    Raises:
        Exception: The mask cannot be restored, and an earlier attempt has written one.
    """
    restored = restore(run, segmentation)
    specs = run.request.algorithm.head_specs
    possible_classes = _find_possible_classes(specs, segmentation, restored.mask, run.min_lesion_sizes)
    results = {}
    for spec in specs:
        possible = possible_classes.get(spec.name, spec.classes)
        results[spec.name] = (
            _HeadResult(possible[0]) if len(possible) == 1 else _fall_back(run, spec, None, possible, NOT_MEASURED)
        )
    return replace(_collect(run, segmentation, restored, results), are_declared=True)


def _collect(
    run: RunContext, segmentation: CaseSegmentation, restored: RestoredMask, results: Mapping[str, _HeadResult]
) -> CaseAnswers:
    """Collect the mask and the results of the heads by the name of the answer."""
    mask_spec = run.request.algorithm.mask_spec
    fallbacks = {} if mask_spec is None else {mask_spec.name: restored.fallback}
    for name, result in results.items():
        saw_fallback_mask = mask_spec is None and result.fallback is None
        fallbacks[name] = restored.fallback if saw_fallback_mask else result.fallback
    return CaseAnswers(
        segmented=segmentation,
        mask=restored.mask,
        values={name: result.value for name, result in results.items()},
        fallbacks={name: fallback for name, fallback in fallbacks.items() if fallback is not None},
        notes=tuple(note for result in results.values() for note in result.notes),
        probabilities={name: result.probability for name, result in results.items() if result.probability is not None},
    )


def restore(run: RunContext, segmentation: CaseSegmentation) -> RestoredMask:
    """Restore the mask on the grid of the scan; an empty mask replaces a mask that cannot be restored.

    Raises:
        Exception: The mask cannot be restored, and either an earlier attempt wrote a mask, which is kept, or the
            edition declares no fallbacks.
    """
    request = run.request
    grid = segmentation.case.scan.geometry
    fallback = None
    if request.method.segmenter == "network" and segmentation.by in FALLBACK_MASKS:
        fallback = Fallback(segmentation.by, "no pass of the network")
    if request.algorithm.mask_spec is None:
        return RestoredMask(None, fallback)
    if segmentation.segmentation is None:
        return _make_empty_mask(grid, NOT_SEGMENTED if request.method.segmenter else "the method makes no mask")
    try:
        with run.stages("restore"):
            mask = segmentation.segmentation.mask_on(grid)
        _check_mask(mask, grid.array_shape)
    except Exception as problem:
        if not request.algorithm.always_answers or _has_written_mask(run):
            raise
        reason = f"the mask cannot be restored ({type(problem).__name__})"
        run.log_once(reason, problem)
        return _make_empty_mask(grid, reason)
    return RestoredMask(mask, fallback)


def _make_empty_mask(grid: Geometry, reason: str) -> RestoredMask:
    mask = np.zeros(grid.array_shape, dtype=np.uint8)
    return RestoredMask(mask, Fallback(MaskSource.EMPTY_MASK, reason))


def _check_mask(mask: _Mask, shape: tuple[int, ...]) -> None:
    if mask.shape != shape or mask.max(initial=0) > max(labels.FOREGROUND):
        raise ValueError(f"mask of shape {mask.shape} with labels up to {mask.max(initial=0)}")


def _has_written_mask(run: RunContext) -> bool:
    """Return whether the answers written so far contain a mask that was restored from a segmentation."""
    answers = run.output.answers
    spec = run.request.algorithm.mask_spec
    if answers is None or spec is None or answers.segmented.segmentation is None:
        return False
    fallback = answers.fallbacks.get(spec.name)
    return fallback is None or fallback.by is not MaskSource.EMPTY_MASK


def measure(
    run: RunContext, segmentation: CaseSegmentation, *, with_user_code: bool = False
) -> SinglePatient | NoFeatures:
    """Measure the features of lesions and patient that the heads need.

    Returns:
        The features; only the clinical features if there is no segmentation. `NoFeatures` for an algorithm without
        heads, and if the measurement fails in the first attempt and all heads have a fallback.

    Raises:
        Exception: The measurement fails, and either an earlier attempt has measured features or a head has no fallback.
    """
    specs = run.request.algorithm.head_specs
    if not specs:
        return NoFeatures("no head needs features")
    clinical = clinical_features(segmentation.case.patient, run.request.edition.clinical)
    if segmentation.segmentation is None or segmentation.by is MaskSource.NOTHING:
        return SinglePatient(clinical, make_empty_cube)
    try:
        images = _collect_images(segmentation.case, segmentation.segmentation, clinical)
        custom = _measure_user_features(run, segmentation, images) if with_user_code else {}
        with run.stages("measure"):
            measured = measure_image_features(
                images.mask, images.ct, images.pet, images.grid, images.dose, run.min_lesion_sizes
            )
    except Exception as problem:
        if run.has_measured or any(spec.fallback is None for spec in specs):
            raise
        reason = f"the features cannot be measured ({type(problem).__name__})"
        run.log_once(reason, problem)
        return NoFeatures(reason)
    run.has_measured = True
    return SinglePatient({**measured, **clinical, **custom}, images.cubes)


def _collect_images(case: Case, segmentation: Segmentation, clinical: Features) -> FeatureImages:
    return FeatureImages(
        mask=segmentation.mask(),
        ct=segmentation.ct,
        pet=segmentation.pet,
        grid=segmentation.grid,
        dose=case.dose,
        clinical=clinical,
    )


def _measure_user_features(run: RunContext, segmentation: CaseSegmentation, images: FeatureImages) -> Features:
    """Measure the features of all hooks; fitted features are not measured on a fallback mask."""
    custom: dict[str, float | None] = {}
    for hook in run.loaded.package.features:
        if not (hook.folds and segmentation.by in FALLBACK_MASKS):
            with run.stages(hook.title):
                custom |= _measure_hook(run, hook, images)
    return custom


def _measure_hook(run: RunContext, hook: FeatureHook, images: FeatureImages) -> Features:
    """Measure the features of one hook; if its code fails, note the error and return no features."""
    try:
        return _measure_fitted_hook(run, hook, images) if hook.folds else hook.measure_features(images, run.deadline)
    except (RuntimeError, MemoryError, ModelPackageError) as problem:
        actual = "too little memory" if isinstance(problem, MemoryError) else str(problem)
        run.notices.note(Finding(hook.title, actual, action="the heads use their training medians"))
        return {}


def _measure_fitted_hook(run: RunContext, hook: FeatureHook, images: FeatureImages) -> Features:
    """Measure fitted features on the device of the networks, or on the CPU if the GPU fails."""
    from algorithm.network.devices import first_line, use_inference_settings

    device = run.loaded.device
    with use_inference_settings(device, limited=run.request.limits_gpu_memory):
        try:
            return hook.measure_features(images, run.deadline, str(device))
        except (RuntimeError, MemoryError) as problem:
            if device.type == "cpu":
                raise
            actual = f"{device} failed ({first_line(problem)})"
        run.notices.note(Finding(hook.title, actual, action="continuing with the CPU"))
        return hook.measure_features(images, run.deadline)


def _find_possible_classes(
    specs: Sequence[AnswerSpec], segmentation: CaseSegmentation, mask: _Mask | None, min_sizes: MinLesionSizes
) -> dict[str, tuple[ClassValue, ...]]:
    """Find the classes that the written mask leaves possible, by the name of each answer that depends on the mask."""
    dependent = [spec for spec in specs if spec.without or spec.rule]
    if mask is None or not dependent:
        return {}
    absent = set()
    for label in labels.FOREGROUND:
        lesions = find_components(mask == label, segmentation.case.scan.geometry)
        if all(is_below(lesion.volume_ml, min_sizes.get_ml(label)) for lesion in lesions):
            absent.add(labels.NAMES[label])
    is_segmented = segmentation.segmentation is not None
    return {spec.name: find_possible_classes(spec, absent, segmented=is_segmented) for spec in dependent}


def _answer_head(
    run: RunContext,
    spec: AnswerSpec,
    patient: SinglePatient | NoFeatures,
    possible: Sequence[ClassValue],
    *,
    with_user_code: bool,
) -> _HeadResult:
    """Answer one risk or class: the only class that the mask leaves possible, the head's value, or a fallback."""
    if len(possible) == 1:
        return _HeadResult(possible[0])
    if isinstance(patient, NoFeatures):
        return _fall_back(run, spec, None, possible, patient.reason)
    try:
        return _ask_head(run, spec, patient, possible, with_user_code=with_user_code)
    except Exception as problem:
        is_bad_case = isinstance(problem, HecktorError) and not isinstance(problem, ModelPackageError)
        if spec.fallback is None or is_bad_case:
            raise
        if isinstance(problem, HecktorError):
            reason = str(problem)
        else:
            reason = type(problem).__name__
            run.log_once(f"{spec.name}: the head fails ({reason})", problem)
        return _fall_back(run, spec, patient, possible, reason)


def _ask_head(
    run: RunContext,
    spec: AnswerSpec,
    patient: SinglePatient,
    possible: Collection[ClassValue],
    *,
    with_user_code: bool,
) -> _HeadResult:
    """Compute the value of one risk or class with its head.

    Raises:
        ModelPackageError: The head is missing, its code fails, or its value is not a possible answer.
    """
    head = run.find_head(spec)
    if not with_user_code:
        head = disable_user_code(head)
    excluded = [value for value in spec.classes if value not in possible]
    faults: Faults = []
    result = compute_head_answer(spec, head, patient.features, patient.cubes, excluded=excluded, faults=faults)
    notes = []
    for fault in faults:
        finding = Finding(fault.what, fault.found, fault.expected, f"the ensemble of {spec.name} leaves it out")
        if with_user_code:
            run.notices.note(finding)
        else:
            # User code follows in a later attempt, whose ensemble may be complete.
            notes.append(str(finding))
    if not _is_valid(spec, result.value):
        raise ModelPackageError(f"head {spec.head!r}", f"gives {result.value!r}", "a possible answer")
    notes += _describe_missing(spec.name, head, patient.features)
    if result.note:
        notes.append(result.note)
    return _HeadResult(result.value, notes=tuple(notes), probability=result.probability)


def _describe_missing(name: str, head: Head, features: Features) -> list[str]:
    """Describe which experts are left out for lack of features, and which features take their training medians."""
    notes = [
        f"{name}: all features of expert {expert!r} are missing, so it is left out"
        for expert in head.list_unavailable_experts(features)
    ]
    terms = head.list_missing_features(features)
    if len(terms) == 1:
        notes.append(f"{name}: {terms[0].feature} is missing; instead its training median {terms[0].fill:g} is used")
    elif terms:
        medians = ", ".join(f"{term.feature} {term.fill:g}" for term in terms)
        notes.append(f"{name}: {len(terms)} features are missing; instead their training medians are used: {medians}")
    return notes


def _fall_back(
    run: RunContext,
    spec: AnswerSpec,
    patient: SinglePatient | None,
    possible: Collection[ClassValue],
    reason: str,
) -> _HeadResult:
    """Return the first value that is possible: by the rule, from the training, as declared, or the first class left.

    Raises:
        ModelPackageError: No value is possible.
    """
    stage = derive_stage(spec.rule, patient.features) if spec.rule and patient is not None else None
    candidates: list[tuple[FallbackSource, Any]] = [
        ("rule", stage),
        ("training", run.loaded.manifest.fallbacks.get(spec.head)),
        ("declaration", spec.fallback),
        *(("declaration", value) for value in possible),
    ]
    for source, value in candidates:
        if value is None or (value in spec.classes and value not in possible):
            continue
        if _is_valid(spec, value):
            return _HeadResult(value, Fallback(source, reason))
        run.log_once(f"{spec.name}: {value!r} by the {source} is not a possible answer")
    raise ModelPackageError(spec.name, "no possible fallback", "a value of the training or the edition")


def _is_valid(spec: AnswerSpec, value: object) -> bool:
    """Return whether the answer may have this value: a declared class, a risk, or days above 0."""
    if spec.kind == "class":
        return is_member(value, spec.classes)
    return is_number(value) and (spec.direction == "risk" or float(value) > 0)  # type: ignore[arg-type]
