"""Cards of the worst cases."""

from __future__ import annotations

from baseline.report.masks import WorstCase
from baseline.report.page import signed, worst_cases_html


def test_pictures_are_files_that_load_when_seen() -> None:
    html = worst_cases_html([WorstCase("CHUM 1", "a < b", b"")], {"CHUM 1": "index_files/CHUM 1.jpg"})
    assert 'loading="lazy"' in html
    assert 'src="index_files/CHUM%201.jpg"' in html
    assert 'alt="CT and PET of CHUM 1 in three planes with contours"' in html
    assert "a &lt; b" in html
    assert "out-of-fold" in html


def test_a_weight_has_its_sign_and_sorts_as_a_number() -> None:
    assert (signed(0.25).html, signed(0.25).sort) == ("+0.250", 0.25)
    assert (signed(None).html, signed(None).sort) == ("-", None)
