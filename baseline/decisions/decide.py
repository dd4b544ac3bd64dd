"""Find the rules on lesions, apply them to the out-of-fold masks, and measure the lesions again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from algorithm.decisions.rules import NO_DECISIONS, Decisions, read_decisions
from algorithm.heads.measure import Features
from baseline.cache import cache, key_of, load_cached, map_items
from baseline.decisions.cohort import Cohort
from baseline.decisions.cross_fit import cross_fitted, gains
from baseline.decisions.masks import decide_patient
from baseline.decisions.record import SCORE
from baseline.decisions.score import Evaluations, Score, score_of
from baseline.decisions.search import everyone, search
from baseline.decisions.tables import tables_of
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.data_set import label_path
from baseline.release.prepare import edition_of
from baseline.release.splits import Splits, read_splits
from baseline.work import WorkFolders
from contract.files import write_json
from evaluation.statistics import DEFAULT_BOOTSTRAPS

# Increment when the same probabilities give other rules, masks or features.
FORMAT_VERSION: Final = 1
# With fewer patients a single lesion changes the score by more than any rule gains.
LEAST_PATIENTS: Final = 30
# Of figures that the edition's ranking may lack.
_TITLES: Final = {
    SCORE: "Score, as far as masks change it",
    "gtvn_f1_agg": "GTVn aggregated F1",
    "gtvn_dsc_agg": "GTVn aggregated DSC",
}


def decide(work: WorkFolders, features: Mapping[str, Features], jobs: int = 1) -> dict[str, Features]:
    """Write `decisions.json`, and masks and features after the decisions; returns these features by patient ID.

    `features` are those of the undecided masks. Skipped for unchanged probabilities, references and splits. Where no
    rule gains, or the patients are too few to tell, masks and features stay undecided and the file says why.
    """
    cases, key = read_cases(work), _key(work)
    done: dict[str, Features] | None = load_cached(work.features_json, key)
    recorded = work.decisions_json.is_file() and work.read(work.decisions_json).get("made_from") == key
    if done is not None and recorded and all(work.mask(case.patient_id).is_file() for case in cases):
        return done
    started = time.monotonic()
    document = _document(work, cases, jobs)
    document["seconds"] = round(time.monotonic() - started, 1)
    rules = read_decisions(document["rules"], work.decisions_json.name)
    decided, document["lesions"] = _apply(work, cases, rules, features, jobs)
    write_json(work.decisions_json, document | {"made_from": key})
    cache(work.features_json, key, decided)
    return decided


def apply_rules(
    work: WorkFolders, features: Mapping[str, Features], rules: Decisions = NO_DECISIONS, jobs: int = 1
) -> dict[str, Features]:
    """Write masks and features after given rules, without a search; by default they stay as they were measured."""
    probabilities = [] if rules == NO_DECISIONS else [work.probabilities(name) for name in features]
    made_from = {"version": FORMAT_VERSION, **rules.as_json()}
    cases, key = read_cases(work), key_of((work.undecided_features_json, *probabilities), made_from)
    done: dict[str, Features] | None = load_cached(work.features_json, key)
    if done is None or not all(work.mask(case.patient_id).is_file() for case in cases):
        done, _ = _apply(work, cases, rules, features, jobs)
        cache(work.features_json, key, done)
    return done


def _key(work: WorkFolders) -> str:
    cases = read_cases(work)
    references = [label_path(work.raw, case) for case in cases if case.mask is not None]
    probabilities = [work.probabilities(case.patient_id) for case in cases]
    files = [work.undecided_features_json, work.splits_json, *probabilities, *references]
    made_from = {"version": FORMAT_VERSION, "edition": edition_of(work).name, "cases": [one.as_json() for one in cases]}
    return key_of(files, made_from)


def _document(work: WorkFolders, cases: Sequence[ReleaseCase], jobs: int) -> dict[str, Any]:
    """The content of `decisions.json` but for the lesions."""
    edition = edition_of(work)
    content: dict[str, Any] = {"format_version": FORMAT_VERSION, "edition": edition.name, "rules": {}, "settings": 0}
    scored = [case for case in cases if case.mask is not None]
    why_not = _why_not(scored)
    if why_not:
        return content | {"patients": len(scored), "why_not": why_not}
    score = score_of(edition, scored)
    measure = partial(tables_of, work=work, with_stages=score.with_stages)
    tables = {one.patient_id: one for one in map_items(measure, scored, jobs, "measure lesions")}
    cohort = Cohort([tables[case.patient_id] for case in scored], score.rules)
    content |= {"patients": len(scored), "weights": dict(score.weights)}
    if not cohort.nodes.any():
        return content | {"why_not": "no reference has a GTVn"}
    return content | _search_result(Evaluations(cohort, score), read_splits(work))


def _why_not(scored: Sequence[ReleaseCase]) -> str:
    """The reason why rules cannot be searched for these patients; empty if they can."""
    if len(scored) < LEAST_PATIENTS:
        return f"{len(scored)} patients with a reference, expected at least {LEAST_PATIENTS}"
    if len({case.centre for case in scored}) < 2:
        return "all patients are from one centre, but a rule must hold with a centre left out"
    return ""


def _search_result(evaluations: Evaluations, splits: Splits) -> dict[str, Any]:
    """The rules of all patients, and the gains with folds and with centres left out."""
    folds = {f"fold {number}": fold for number, fold in enumerate(splits.folds)}
    rules, crossed, by_group = search(evaluations, everyone(evaluations.cohort)), {}, {}
    for split, groups in (("folds", folds), ("centres", splits.centres)):
        counts, found = cross_fitted(evaluations, groups)
        crossed[split] = gains(evaluations, counts, splits.seed)
        by_group[split] = {name: one.as_json() for name, one in found.items()}
    why_not = _fault(rules, crossed)
    return {
        "settings": evaluations.settings,
        "bootstraps": DEFAULT_BOOTSTRAPS,
        "titles": _titles(evaluations.score),
        "cross_fitted": crossed,
        "rules_by_group": by_group,
        "in_sample": gains(evaluations, evaluations.of(rules), splits.seed),
        "why_not": why_not,
        "rules": {} if why_not else rules.as_json(),
    }


def _fault(rules: Decisions, crossed: Mapping[str, Mapping[str, Any]]) -> str:
    if rules == NO_DECISIONS:
        return "no rule gains enough and holds with centres left out"
    for split, figures in crossed.items():
        gain = figures[SCORE]["difference"]["value"]
        if gain <= 0:
            return f"with rules found without the patient's {split[:-1]}, the score changes by {gain:+.4f}"
    return ""


def _titles(score: Score) -> dict[str, str]:
    return {**_TITLES, **score.titles}


def _apply(
    work: WorkFolders, cases: Sequence[ReleaseCase], rules: Decisions, features: Mapping[str, Features], jobs: int
) -> tuple[dict[str, Features], list[dict[str, Any]]]:
    """Write each patient's mask; returns features by patient ID, and all lesions with the rules' effect."""
    work.features_json.unlink(missing_ok=True)  # of earlier masks
    if rules == NO_DECISIONS:
        work.masks.mkdir(parents=True, exist_ok=True)
        for case in cases:
            shutil.copyfile(work.undecided_mask(case.patient_id), work.mask(case.patient_id))
        return dict(features), []
    decided = dict(map_items(partial(decide_patient, work=work, rules=rules), cases, jobs, "decide"))
    rows = {case.patient_id: decided[case.patient_id] for case in cases}
    lesions = [lesion for row in rows.values() for lesion in row.lesions]
    return {name: features[name] if row.features is None else row.features for name, row in rows.items()}, lesions
