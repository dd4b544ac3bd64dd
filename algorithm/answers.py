"""The answers of one case, by the network and the heads, each with a stand-in of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithm.context import CaseAnswers, RestoredMask, RunContext, StandIn, StandInSource
from algorithm.heads.documents import ClassEnsembleHead, EnsembleHead, Features
from algorithm.heads.staging import staged
from algorithm.heads.values import answer_value
from algorithm.masks.segmentation import Segmented
from algorithm.prediction import HeadValue
from contract import labels
from contract.editions import Answer
from contract.editions.declaration import ClassValue
from contract.editions.values import is_member, is_number
from contract.errors import HecktorError, ModelPackageError

LOGGER = logging.getLogger("hecktor")
_Mask = npt.NDArray[np.uint8]


class _NoFeaturesError(Exception):
    """A fault left no features; the message is the reason."""


def restore(run: RunContext, segmented: Segmented) -> RestoredMask:
    """The mask on the CT's grid; an empty one as stand-in if there is no segmentation or it cannot be restored."""
    restored = run.restored  # read once: another thread may replace it after an early end
    if restored is None or restored.segmented is not segmented:
        restored = run.restored = _restored(run, segmented)
    return restored


def _restored(run: RunContext, segmented: Segmented) -> RestoredMask:
    request, grid, segmentation = run.request, segmented.case.ct.geometry, segmented.segmentation
    if request.algorithm.mask is None:
        return RestoredMask(segmented, None)
    fault = run.fault
    if segmentation is not None:
        try:
            with run.stages("restore"):
                mask = segmentation.mask_on(grid)
            _check_mask(mask, grid.array_shape)
        except Exception as problem:
            if not request.always_answers or run.is_retried(problem):
                raise
            fault = f"the mask cannot be restored ({type(problem).__name__})"
            LOGGER.exception("*** STAND-IN *** %s: an empty mask is written, %s", request.algorithm.mask.name, fault)
        else:
            by_threshold = not segmented.by_network and not segmented.without_neck
            stands_in = request.method.segmenter == "network" and by_threshold
            stand_in = StandIn("PET threshold", "no pass of the network") if stands_in else None
            return RestoredMask(segmented, mask, stand_in)
    empty = np.zeros(grid.array_shape, dtype=np.uint8)
    return RestoredMask(segmented, empty, StandIn("empty mask", fault))


def answer(run: RunContext, mask: RestoredMask, features: Features | None) -> CaseAnswers:
    """All answers of the algorithm, by their kinds; `features` is None if there are none.

    Raises:
        Exception: an answer without a stand-in fails, or memory runs out for the first time.
    """
    algorithm = run.request.algorithm
    values: dict[str, HeadValue] = {}
    by_head: list[str] = []
    stand_ins: dict[str, StandIn] = {}
    if algorithm.mask is not None and mask.stand_in is not None:
        stand_ins[algorithm.mask.name] = mask.stand_in
    for declared in algorithm.heads:
        with run.stages("head"):
            by_mask, excluded = _classes_of_mask(declared, algorithm.mask, mask.array)
            if by_mask is not None:
                values[declared.name] = by_mask
                continue
            try:
                values[declared.name] = _by_head(run, declared, features, excluded)
                by_head.append(declared.name)
            except Exception as problem:
                if not _may_stand_in(run, declared, problem):
                    raise
                value, stand_in = _stand_in(run, declared, features, excluded, problem)
                values[declared.name], stand_ins[declared.name] = value, stand_in
    return CaseAnswers(mask.segmented, mask.array, values, tuple(by_head), stand_ins)


def _check_mask(mask: _Mask, shape: tuple[int, ...]) -> None:
    if mask.shape != shape or mask.max(initial=0) > max(labels.FOREGROUND):
        raise ValueError(f"mask of shape {mask.shape} with labels up to {mask.max(initial=0)}")


def _classes_of_mask(
    declared: Answer, mask_answer: Answer | None, mask: _Mask | None
) -> tuple[ClassValue | None, tuple[ClassValue, ...]]:
    """The class that the written mask decides, or None, and the classes that it excludes (`Answer.without`)."""
    excluded: list[ClassValue] = []
    if mask is not None and mask_answer is not None:
        for structure, value in declared.without.items():
            if not np.any(mask == mask_answer.labels[structure]):
                return value, ()
            excluded.append(value)
    return None, tuple(excluded)


def _by_head(
    run: RunContext,
    declared: Answer,
    features: Features | None,
    excluded: Collection[ClassValue],
) -> HeadValue:
    if features is None:
        raise _NoFeaturesError(run.fault)
    head = run.head(declared)
    for expert in head.unavailable(features) if isinstance(head, EnsembleHead | ClassEnsembleHead) else ():
        LOGGER.info("%s: all features of expert %r are missing, it is left out", declared.name, expert)
    for term in head.missing(features):
        LOGGER.info("%s: %s is missing, its training median %g is used", declared.name, term.feature, term.fill)
    value = answer_value(declared, head, features, excluded)
    if not _is_valid(declared, value):
        raise ModelPackageError(f"head {declared.head!r}", f"gives {value!r}", "a possible answer")
    return value


def _may_stand_in(run: RunContext, declared: Answer, problem: Exception) -> bool:
    """True after a fault of the head or a bug, if a stand-in is declared; a bad case stays an error."""
    is_bad_case = isinstance(problem, HecktorError) and not isinstance(problem, ModelPackageError)
    return declared.stand_in is not None and not is_bad_case and not run.is_retried(problem)


def _stand_in(
    run: RunContext,
    declared: Answer,
    features: Features | None,
    excluded: Collection[ClassValue],
    problem: Exception,
) -> tuple[HeadValue, StandIn]:
    """The first possible value: by the rule, of the training, of the declaration, or any class that is left."""
    sources: list[tuple[StandInSource, Callable[[], Any]]] = [
        ("rule", lambda: staged(declared.rule, features) if declared.rule and features is not None else None),
        ("training", lambda: run.resident.stand_ins.get(declared.head)),
        ("declaration", lambda: declared.stand_in),
        ("declaration", lambda: next(value for value in declared.classes if value not in excluded)),
    ]
    why = str(problem) if isinstance(problem, HecktorError | _NoFeaturesError) else type(problem).__name__
    for source, value_of in sources:
        try:
            value = value_of()
        except Exception:
            LOGGER.exception("*** WARNING *** %s: no value by the %s", declared.name, source)
            continue
        if _is_valid(declared, value) and value not in excluded:
            break
        if value is not None and value not in excluded:
            LOGGER.warning("*** WARNING *** %s: %r by the %s is no possible answer", declared.name, value, source)
    trace = None if isinstance(problem, HecktorError | _NoFeaturesError) else problem
    what = declared.name, value, source, why
    LOGGER.warning("*** STAND-IN *** %s: %r is written, by the %s (%s)", *what, exc_info=trace)
    return value, StandIn(source, why)


def _is_valid(declared: Answer, value: object) -> bool:
    """True for a value that the answer's output may have."""
    if declared.kind == "class":
        return is_member(value, declared.classes)
    return is_number(value) and (declared.direction == "risk" or float(value) > 0)  # type: ignore[arg-type]
