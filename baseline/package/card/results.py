"""Expected performance of a model, from the files of the steps `heads` and `report`; nothing is computed here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from algorithm.heads.documents import read_head
from baseline.heads.cross_validation import HEADS, KINDS, METRIC_TITLES, SINGLE_BEST
from baseline.heads.document import spread_of
from baseline.heads.metrics import mask_metric_titles
from baseline.heads.models.kinds import Target, direction_in_words
from baseline.heads.models.targets import COMPARATORS, targets_of
from baseline.release.record import edition_of
from baseline.work import WorkFolders
from contract.editions import Edition
from contract.files import read_json
from contract.markdown import section, table
from contract.platform import METRICS_JSON

Record = Mapping[str, Any]
NO_REPORT: Final = "Not computed: `hecktor train report` has not been run."
STALE_REPORT: Final = "Not computed: the report is older than these heads; run `hecktor train report` again."
WITHOUT_INTERVALS: Final = "No intervals: the report has not been made, or is older than these heads."


def results(work: WorkFolders) -> str:
    """Performance of the segmentation and of each target, over all patients and by centre."""
    edition = edition_of(work)
    targets = targets_of(edition)
    report = current_report(work, targets)
    document, heads = work.read(work.cross_validation_json), work.read(work.heads_json)
    parts = {target.title: _target(target, document, heads.get(target.name), report) for target in targets}
    parts = {"Segmentation": _segmentation(work, report, edition), **parts}
    return "\n\n".join(section(3, title, *part) for title, part in parts.items())


def current_report(work: WorkFolders, targets: tuple[Target, ...]) -> Record | None:
    """`report.json`; None if it is absent or was made from other heads."""
    if not work.report_json.is_file():
        return None
    report: Record = read_json(work.report_json)
    document = work.read(work.cross_validation_json)
    same = all(_agree(report, document[target.name], target.name, kind) for target in targets for kind in KINDS)
    return report if same else None


def _agree(report: Record, record: Record, name: str, kind: str) -> bool:
    reported = report.get(name, {}).get("models", {}).get("heads", {}).get(kind, {}).get("value")
    value = record[kind].get(record["metric"])
    if reported is None or value is None:
        return reported is value
    return math.isclose(reported, value, abs_tol=1e-6)


def _segmentation(work: WorkFolders, report: Record | None, edition: Edition) -> list[str]:
    path = work.segmentation / METRICS_JSON
    if report is None or not path.is_file():
        return [STALE_REPORT if work.report_json.is_file() else NO_REPORT]
    scored = read_json(path)
    cases, provenance = scored["cases"]["used"], scored["provenance"]
    about = (
        f"{cases} patients, each segmented by a network that never saw them, scored on the CT's own grid by the "
        f"evaluation package (edition {provenance['edition']}). 95% intervals over {provenance['bootstraps']} "
        "bootstrap samples of patients. Networks trained without a centre were not evaluated."
    )
    titles = mask_metric_titles(edition)
    rows = [["all", cases, *(estimate(scored["aggregates"][name]) for name in titles)]]
    for centre, group in sorted(scored["centres"].items()):
        rows.append([centre, group["cases"], *(estimate(group["aggregates"][name]) for name in titles)])
    return [about, table(["Centre", "Patients", *titles.values()], rows)]


def _target(target: Target, document: Record, head: Record | None, report: Record | None) -> list[str]:
    record = document[target.name]
    about = f"{METRIC_TITLES[target.metric].capitalize()} over {len(record['patients'])} patients. "
    about += WITHOUT_INTERVALS if report is None else "95% intervals over bootstrap samples of patients."
    known = {kind: title.capitalize() for kind, title in KINDS.items() if "why_not" not in record[kind]}
    missing = [
        f"{title.capitalize()}: not computed ({record[kind]['why_not']})."
        for kind, title in KINDS.items()
        if kind not in known
    ]
    return [
        f"There is no head: {document['no_head'].get(target.name, 'not fitted')}."
        if head is None
        else f"{_shipped(head)} {direction_in_words(target.answer, head['head'])}",
        " ".join([about, *missing, *_repeats(record)]),
        table(["", *known.values(), "Difference"], _model_rows(target, record, known, report)) if known else "",
        table(["Centre", "Patients", *known.values()], _centre_rows(record, known)) if known else "",
        *(_confusion(record[kind], title) for kind, title in known.items() if "confusion" in record[kind]),
    ]


def _model_rows(target: Target, record: Record, kinds: Mapping[str, str], report: Record | None) -> list[list[str]]:
    """The heads and each comparator; intervals and the difference of both kinds come from the report."""
    rows = []
    of_mean = any(SINGLE_BEST in record[kind]["comparators"] for kind in kinds)
    names = [*([SINGLE_BEST] if of_mean else []), *target.comparators, *target.rules]
    models = {"heads": "heads", **{name: COMPARATORS[name] for name in names}}
    for name, title in models.items():
        reported = {} if report is None else report[target.name]["models"].get(name, {})
        cells = []
        for kind in kinds:
            scored = record[kind] if name == "heads" else record[kind]["comparators"].get(name, {})
            cells.append(estimate(reported.get(kind) or {"value": scored.get(target.metric)}))
        gap = reported.get("gap")
        rows.append([title, *cells, "-" if gap is None else estimate(gap)])
    return rows


def _shipped(head: Record) -> str:
    """The shipped head, its number of features with a weight and, for a mean, its experts with their metrics."""
    count = len(read_head(head["head"], "heads.json").features)
    features = f"{count} feature{'' if count == 1 else 's'}"
    experts = head.get("experts", ())
    if len(experts) < 2:
        return f"Shipped: `{head['model']}`, with {features}."
    shown = ", ".join(f"`{one['name']}` {one['metric']:.3f}" for one in experts)
    return (
        f"Shipped: the mean of {len(experts)} experts, with {features} in all. The experts, with their metric over the "
        f"folds that selected them: {shown}."
    )


def _repeats(record: Record) -> list[str]:
    """Mean and spread of the heads and the single best model over nested cross-validations with other splits."""
    heads, single = (spread_of(record["nested"], model) for model in (HEADS, SINGLE_BEST))
    if heads is None or single is None:
        return []
    count = len(record["nested"]["repeats"][HEADS])
    about = f"Nested cross-validation with {count} different splits: mean {heads[0]:.3f}, standard deviation "
    return [f"{about}{heads[1]:.3f}; the single best model {single[0]:.3f}, {single[1]:.3f}."]


def _confusion(scored: Record, title: str) -> str:
    """Confusion matrix and recall of each class."""
    names = list(scored["recall"])
    rows = [
        [name, *counts, estimate({"value": scored["recall"][name]})]
        for name, counts in zip(names, scored["confusion"], strict=True)
    ]
    return table([f"{title}: reference", *(f"given {name}" for name in names), "Recall"], rows)


def _centre_rows(record: Record, kinds: Mapping[str, str]) -> list[list[object]]:
    counts = Counter(row["centre"] for row in record["patients"])
    return [
        [centre, count, *(estimate({"value": record[kind]["by_centre"].get(centre)}) for kind in kinds)]
        for centre, count in sorted(counts.items())
    ]


def estimate(record: Record) -> str:
    """A figure with its interval if there is one."""
    value, low, high = (record.get(name) for name in ("value", "ci95_low", "ci95_high"))
    if value is None:
        return "undefined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} ({low:.3f} to {high:.3f})"
