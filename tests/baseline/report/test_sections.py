"""The section on the masks."""

from __future__ import annotations

from baseline.report.sections import segmentation_section


def test_segmentation_by_centre() -> None:
    aggregates = {"gtvp_dsc_mean": {"value": 0.7, "ci95_low": 0.6, "ci95_high": 0.8}}
    report = {
        "cases": {"used": 12}, "provenance": {"edition": "hecktor2025"}, "aggregates": aggregates,
        "centres": {"CHUM": {"cases": 5, "aggregates": {"gtvp_dsc_mean": {"value": None}}}},
    }  # fmt: skip
    content = segmentation_section(report, {"gtvp_dsc_mean": "GTVp mean DSC"}, without_mask=3)
    assert '0.700</span> <span class="interval">0.600 to 0.800' in content
    assert (
        '<span class="choice" data-key="centre" data-value="CHUM">CHUM</span></th><td data-sort="5">5</td><td>-</td>'
        in content
    )
    assert "3 patients without a reference" in content
    assert "CT's own grid" in content.replace("&#x27;", "'")
