"""From a working directory to `report/index.html` and, with the same figures, `report/report.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from baseline.cache import key_of
from baseline.heads.models.targets import HPV, RFS
from baseline.report import page
from baseline.report.sections import segmentation_section, target_section
from baseline.report.segmentation import metric_titles, score_out_of_fold, worst_cases
from baseline.report.trust_section import HEADING, records_of, trust_section
from baseline.work import Work
from contract.errors import HecktorError
from contract.files import read_json, write_json, write_text
from evaluation.pipeline import DEFAULT_BOOTSTRAPS

FORMAT_VERSION: Final = 3
_HEADINGS: Final = {RFS.name: "Recurrence-free survival", HPV.name: "HPV status"}
_WORST: Final = (
    "The patients with the lowest mean DSC of GTVp and GTVn, the worst first; planes through the reference's lesions."
)


def make_report(root: Path, jobs: int) -> Path:
    """Write the page, unless it is there already and nothing that it was drawn from has changed; returns its path.

    Raises:
        HecktorError: `hecktor train heads` has not been run, or an out-of-fold mask is gone.
    """
    work = Work(root)
    document, heads, splits, cases = work.judged(), work.heads(), work.splits(), work.cases()
    scored = [case for case in cases if case.mask is not None]
    masks = [work.out_of_fold.mask(case.patient_id) for case in scored]
    absent = [path.name for path in masks if not path.is_file()]
    if absent:
        raise HecktorError(f"out_of_fold/masks/{absent[0]}", "not found", "`hecktor train heads` before")
    target = work.report / "index.html"
    kept_trust = [work.out_of_fold.uncertainty(case.patient_id) for case in scored]
    trust = [path if path.is_file() else None for path in kept_trust]
    sources = [*masks, *(case.mask for case in scored), *trust, work.cross_validation_json, work.heads_json]
    key = key_of(sources, {"version": FORMAT_VERSION})
    record = work.report / "report.json"
    if target.is_file() and record.is_file() and read_json(record).get("made_from") == key:
        return target
    report = score_out_of_fold(work, scored, splits.seed, jobs)
    titles = metric_titles()
    kept: dict[str, Any] = {name: report["aggregates"][name] for name in titles}
    told, trusted = trust_section(records_of(work, scored), report["results"], DEFAULT_BOOTSTRAPS, splits.seed)
    sections = [
        ("segmentation", "Segmentation", segmentation_section(report, titles, len(cases) - len(scored))),
        ("uncertainty", HEADING, told),
    ]
    plain: dict[str, Any] = {"format_version": FORMAT_VERSION, "made_from": key, "segmentation": kept}
    plain["uncertainty"] = trusted
    for name, heading in _HEADINGS.items():
        content, plain[name] = target_section(document[name], heads.get(name), DEFAULT_BOOTSTRAPS, splits.seed)
        sections.append((name, heading, content))
    worst = worst_cases(work, scored, report["results"])
    sections.append(("worst", "Worst cases", page.paragraph(_WORST) + page.pictures(worst)))
    plain["worst_cases"] = [case.case for case in worst]
    lead = f"{len(cases)} patients of {len({case.centre for case in cases})} centres, {len(splits.folds)} networks."
    write_text(target, page.page("What this training gives", lead, sections, _footer(work, splits.seed)))
    write_json(record, plain)
    return target


def _footer(work: Work, seed: int) -> str:
    made = ", ".join(f"{name} {version}" for name, version in work.prepared()["versions"].items())
    return f"Seed {seed}. {made}. The figures stand in report.json, cross_validation.json and task1/metrics.json."
