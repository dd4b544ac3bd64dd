"""Bundles of other projects equal the published ones and have their licences."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import reporting.page

VENDOR = Path(reporting.page.__file__).parent / "vendor"
BUNDLES = json.loads((VENDOR / "vendor.json").read_text())["bundles"]


@pytest.mark.parametrize("bundle", BUNDLES, ids=[bundle["package"] for bundle in BUNDLES])
def test_a_bundle_is_the_published_one_and_has_its_licence(bundle: dict[str, str]) -> None:
    assert hashlib.sha256((VENDOR / bundle["file"]).read_bytes()).hexdigest() == bundle["sha256"]
    assert "Copyright" in (VENDOR / bundle["licence_file"]).read_text()


def test_no_other_bundle_is_there() -> None:
    listed = {bundle[key] for bundle in BUNDLES for key in ("file", "licence_file")}
    assert {path.name for path in VENDOR.iterdir()} == listed | {"vendor.json"}
