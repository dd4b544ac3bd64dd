"""The packages that a plan has exported, so that later steps recognise them."""

from __future__ import annotations

from pathlib import Path

from baseline.work import WorkFolders
from contract.files import write_json
from contract.packages import MANIFEST, file_entry


def record_export(work: WorkFolders, package: Path) -> None:
    """Write `exported.json`; `earlier` holds the checksums of the plan's earlier packages."""
    sha256 = package_checksum(package)
    before = work.read(work.exported_json) if work.exported_json.is_file() else {}
    earlier = [one for one in (*before.get("earlier", ()), before.get("sha256")) if one not in (None, sha256)]
    record = {"package": package.name, "sha256": sha256, "earlier": list(dict.fromkeys(earlier))}
    write_json(work.exported_json, record)


def package_checksum(package: Path) -> str:
    """The sha256 of a package's archive, or of its manifest, which holds those of all its files."""
    return str(file_entry(package / MANIFEST if package.is_dir() else package)["sha256"])
