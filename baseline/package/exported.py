"""The packages that a plan has exported, so that later steps recognise them."""

from __future__ import annotations

from pathlib import Path

from baseline.work import WorkFolders, planned
from contract.errors import HecktorError
from contract.files import read_json, write_json
from contract.packages import manifest_sha256


def record_export(work: WorkFolders, package: Path) -> None:
    """Write `exported.json`; `earlier` holds the checksums of the plan's earlier packages."""
    sha256 = manifest_sha256(package)
    before = work.read(work.exported_json) if work.exported_json.is_file() else {}
    earlier = [one for one in (*before.get("earlier", ()), before.get("sha256")) if one not in (None, sha256)]
    record = {"package": package.name, "sha256": sha256, "earlier": list(dict.fromkeys(earlier))}
    write_json(work.exported_json, record)


def exporting_plan(shared: Path, package: Path) -> WorkFolders | None:
    """The plan of a working directory that exported this package, as a folder or archive; None for another package.

    Raises:
        ModelPackageError: not a model package.
        HecktorError: an earlier package of a plan.
    """
    sha256 = manifest_sha256(package)
    for plan in planned(shared):
        exported = read_json(plan.exported_json) if plan.exported_json.is_file() else {}
        if sha256 == exported.get("sha256"):
            return plan
        if sha256 in exported.get("earlier", ()):
            found = f"an earlier package of {plan.name}, whose networks have seen the patients"
            raise HecktorError(package.name, found, f"{plan.name}, or a package that was exported last")
    return None
