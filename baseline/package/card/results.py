"""What a model may be expected to do, from what the steps `heads` and `report` left; nothing is computed here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from baseline.work import Work
from contract.files import read_json
from contract.markdown import section, table
from contract.platform import METRICS_JSON
from contract.tasks import HPV, RFS, SEGMENTATION

Record = Mapping[str, Any]
KINDS: Final = {"nested": "Nested cross-validation", "leave_one_centre_out": "Leave one centre out"}
TITLES: Final = {
    "gtvp_dsc_mean": "GTVp mean DSC",
    "gtvn_dsc_agg": "GTVn aggregated DSC",
    "gtvn_f1_agg": "GTVn aggregated F1",
    "c_index": "C-index",
    "balanced_accuracy": "Balanced accuracy",
}
_HEADINGS: Final = {RFS.name: "Recurrence-free survival", HPV.name: "HPV status"}
_MODELS: Final = {
    "tumour_volume": "tumour volume alone",
    "suv_max": "SUVmax alone",
    "clinical": "clinical variables alone",
}
NO_REPORT: Final = "Not computed: `hecktor train report` has not been run."
STALE_REPORT: Final = (
    "Not computed: the report was made of other heads than these; `hecktor train report` makes it again."
)
WITHOUT_INTERVALS: Final = "Intervals were not computed: the report was not made, or of other heads than these."


def results(work: Work) -> str:
    """Segmentation, recurrence-free survival and HPV status, each over everyone and by centre."""
    judged, report = work.judged(), report_of(work)
    parts = [section(3, "Segmentation", *_segmentation(work, report))]
    for name, heading in _HEADINGS.items():
        parts.append(section(3, heading, *_target(judged, name, work.heads().get(name), report)))
    return "\n\n".join(parts)


def report_of(work: Work) -> Record | None:
    """`report.json`; None where the report was not made, or of other heads than those of the working directory."""
    path = work.report / "report.json"
    if not path.is_file():
        return None
    found: Record = read_json(path)
    judged = work.judged()
    same = all(_agree(found, judged[name], name, kind) for name in _HEADINGS for kind in KINDS)
    return found if same else None


def _agree(report: Record, record: Record, name: str, kind: str) -> bool:
    told = report.get(name, {}).get("judged", {}).get("heads", {}).get(kind, {}).get("value")
    found = record[kind].get(record["metric"])
    if told is None or found is None:
        return told is found
    return math.isclose(told, found, abs_tol=1e-6)


def _segmentation(work: Work, report: Record | None) -> list[str]:
    path = work.report / "task1" / METRICS_JSON
    if report is None or not path.is_file():
        return [STALE_REPORT if (work.report / "report.json").is_file() else NO_REPORT]
    found = read_json(path)
    cases, about = found["cases"]["used"], found["provenance"]
    told = (
        f"{cases} patients, each segmented by the one network that never saw them, scored on the CT's own grid by the "
        f"evaluation package (edition {about['edition']}). Intervals: 95%, patients drawn again "
        f"{about['bootstraps']} times. Networks that never saw a centre were not measured."
    )
    rows = [["all", cases, *(estimate(found["aggregates"][name]) for name in SEGMENTATION.metrics)]]
    for centre, one in sorted(found["centres"].items()):
        rows.append([centre, one["cases"], *(estimate(one["aggregates"][name]) for name in SEGMENTATION.metrics)])
    return [told, table(["Centre", "Patients", *(TITLES[name] for name in SEGMENTATION.metrics)], rows)]


def _target(judged: Record, name: str, head: Record | None, report: Record | None) -> list[str]:
    record = judged[name]
    metric = TITLES[record["metric"]]
    told = f"{metric} over {len(record['patients'])} patients. "
    told += WITHOUT_INTERVALS if report is None else "Intervals: 95%, patients drawn again."
    shipped = f"There is no head: {judged['no_head'].get(name, 'not fitted')}." if head is None else _shipped(head)
    missing = [
        f"{title}: not computed ({record[kind]['why_not']})." for kind, title in KINDS.items() if _absent(record, kind)
    ]
    known = {kind: title for kind, title in KINDS.items() if not _absent(record, kind)}
    gap = "" if report is None else report[name].get("gap", "")
    return [
        shipped,
        " ".join([told, *missing]),
        table(["", *known.values()], _overall_rows(record, name, known, report)) if known else "",
        gap,
        table(["Centre", "Patients", *known.values()], _centre_rows(record, known)) if known else "",
    ]


def _absent(record: Record, kind: str) -> bool:
    return "why_not" in record[kind]


def _shipped(head: Record) -> str:
    return f"Shipped: {head['model']}, {len(head['head']['terms'])} features."


def _overall_rows(record: Record, name: str, kinds: Sequence[str] | Record, report: Record | None) -> list[list[str]]:
    """The heads and each comparator; with intervals where the report has them."""
    rows = []
    models = {"heads": "heads", **_MODELS}
    for model, title in models.items():
        told = {} if report is None else report[name]["judged"].get(title, {})
        cells = []
        for kind in kinds:
            found = record[kind] if model == "heads" else record[kind]["comparators"].get(model, {})
            cells.append(estimate(told.get(kind) or {"value": found.get(record["metric"])}))
        rows.append([title, *cells])
    return rows


def _centre_rows(record: Record, kinds: Sequence[str] | Record) -> list[list[object]]:
    counts = Counter(row["centre"] for row in record["patients"])
    return [
        [centre, count, *(estimate({"value": record[kind]["by_centre"].get(centre)}) for kind in kinds)]
        for centre, count in sorted(counts.items())
    ]


def estimate(found: Record) -> str:
    """A figure with its interval where there is one; a figure that is not defined for these patients says so."""
    value, low, high = (found.get(name) for name in ("value", "ci95_low", "ci95_high"))
    if value is None:
        return "undefined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} ({low:.3f} to {high:.3f})"
