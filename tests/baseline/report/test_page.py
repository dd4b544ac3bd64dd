"""Cards of the worst cases, and the section on the masks."""

from __future__ import annotations

from baseline.report.masks import WorstCase
from baseline.report.page import segmentation_section, worst_cases_html


def test_pictures_are_files_that_load_when_seen() -> None:
    html = worst_cases_html([WorstCase("CHUM 1", "a < b", b"")], {"CHUM 1": "index_files/CHUM 1.jpg"})
    assert 'loading="lazy"' in html
    assert 'src="index_files/CHUM%201.jpg"' in html
    assert 'alt="CT and PET of CHUM 1 in three planes with contours"' in html
    assert "a &lt; b" in html
    assert "out-of-fold" in html


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
