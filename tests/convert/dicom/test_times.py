"""Start of the scan and time since the injection, by the SUV factors that follow from them (`test_suv` derives them)."""

from __future__ import annotations

from typing import Any

import pytest
from pydicom.dataset import Dataset

from tests.convert.dicom.test_suv import AN_HOUR, add_philips_factors, compute_factor, compute_scale
from tests.convert.studies import PET_GRID, StudyFolder

# 100 min: 370 MBq * 2^(-6000 / 6586.2) = 370 * 0.531818 = 196.773 MBq; 75,000 / 196.773e6.
HUNDRED_MINUTES = 3.81151e-4


def set_bed_times(hour: int, minutes: tuple[int, int, int], reference_s: tuple[float, float, float]) -> Any:
    """Set times of three beds of two slices and 603 s: minutes of acquisition, and seconds of FrameReferenceTime.

    With L = ln 2 / 6586.2 s and x = 603 L = 0.0634611, the average count is ln(x / (1 - e^-x)) / L = 299.9056 s after
    the start of the frame.
    """

    def edit(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = f"{hour}{minutes[index // 2]:02d}00"
        dataset.FrameReferenceTime = str(1000 * reference_s[index // 2])
        dataset.ActualFrameDuration = "603000"

    return edit


def set_acquisition_times(*times: str) -> Any:
    """Set the times of beds of equal numbers of slices."""

    def edit(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = times[index * len(times) // SLICES]

    return edit


def compute_suv_after(seconds: float) -> float:
    """Return the SUV of 1 Bq/ml `seconds` after the injection."""
    return 75_000 / (370e6 * 2 ** (-seconds / 6586.2))


SLICES = PET_GRID.size[2]
START_SOURCE = "AcquisitionTime and FrameReferenceTime (START)"


@pytest.mark.parametrize("series", ["153000", "135500", None])
def test_start_of_the_scan_by_the_beds(study: StudyFolder, series: str | None) -> None:
    """Beds from 14:05, 14:10 and 14:15 with 600, 900 and 1,200 s: 14:05 + 299.9056 s - 600 s is 13:59:59.9056.

    The first bed is not in the series; SeriesTime is later, earlier or absent.
    """
    result = compute_scale(study, SeriesTime=series, edit=set_bed_times(14, (5, 10, 15), (600, 900, 1200)))
    assert result.factors == pytest.approx([compute_suv_after(3599.9056)] * SLICES, rel=1e-7)
    assert START_SOURCE in result.derivation
    assert len(result.findings) == (series is not None)


@pytest.mark.parametrize(
    ("series", "problem"),
    [
        ("140730", "14:07:30 is 7.5 min after the start by AcquisitionTime and FrameReferenceTime"),
        ("135230", "13:52:30 is 7.5 min before the start by AcquisitionTime and FrameReferenceTime"),
        ("140030", None),
    ],
)
def test_an_overruled_series_time_is_a_finding(study: StudyFolder, series: str, problem: str | None) -> None:
    """7.5 min are 450.0944 s, 2^(-450.0944 / 6586.2) = 0.953737; before, 2^(449.9056 / 6586.2) = 1.048489."""
    result = compute_scale(study, SeriesTime=series, edit=set_bed_times(14, (5, 10, 15), (600, 900, 1200)))
    if problem is None:
        assert result.findings == ()
        return
    (finding,) = result.findings
    assert finding.found == f"SeriesTime (0008,0031) {problem}"
    change = "-4.6%" if "after" in problem else "+4.8%"
    assert finding.action == f"this start is used, SUV {change} compared with SeriesTime"


def test_ge_refers_to_the_start_of_the_bed(study: StudyFolder) -> None:
    """Beds from 14:05, 14:10 and 14:15 with 300, 600 and 900 s: the scan began at 14:00."""
    edit = set_bed_times(14, (5, 10, 15), (300, 600, 900))
    result = compute_scale(study, SeriesTime="153000", Manufacturer="GE MEDICAL SYSTEMS", edit=edit)
    assert result.factors == pytest.approx([compute_suv_after(3600)] * SLICES, rel=1e-9)


@pytest.mark.parametrize(
    ("reference_s", "problem"),
    [
        ((0, 0, 0), "puts the start at 14:09:59 to 14:19:59"),  # after the first bed's
        ((600, 600, 600), "puts the start at 13:59:59 to 14:09:59"),  # of different starts
        ((6e5, 6e5 + 300, 6e5 + 600), "puts the start at"),  # microseconds
    ],
)
@pytest.mark.parametrize(
    ("series", "source", "seconds"), [("153000", "first AcquisitionTime", 3900), ("135800", "SeriesTime", 3480)]
)
def test_impossible_reference_times_are_named(
    study: StudyFolder, reference_s: tuple[float, float, float], problem: str, series: str, source: str, seconds: float
) -> None:
    result = compute_scale(study, SeriesTime=series, edit=set_bed_times(14, (5, 10, 15), reference_s))
    assert result.factors == pytest.approx([compute_suv_after(seconds)] * SLICES, rel=1e-9)
    (finding,) = result.findings
    assert problem in finding.found
    assert finding.action == f"{source} is used as the start"


def test_without_decay_correction_slices_have_their_times(study: StudyFolder) -> None:
    """Beds from 14:00, 14:10 and 14:20: 3899.9056, 4499.9056 and 5099.9056 s after the injection."""
    edit = set_bed_times(14, (0, 10, 20), (0, 0, 0))
    result = compute_scale(study, DecayCorrection="NONE", CorrectedImage=["ATTN", "SCAT"], edit=edit)
    expected = [compute_suv_after(seconds) for seconds in (3899.9056, 4499.9056, 5099.9056) for _ in range(2)]
    assert result.factors == pytest.approx(expected, rel=1e-7)
    assert "65.0 to 85.0 min from injection to the average count of each slice (NONE)" in result.derivation


def test_counts_without_decay_correction(study: StudyFolder) -> None:
    """Counts are 1.5 Bq/ml."""
    vendor, times = add_philips_factors(suv_factor=None, activity_factor=1.5), set_bed_times(14, (0, 10, 20), (0, 0, 0))

    def edit(dataset: Dataset, index: int) -> None:
        vendor(dataset, index)
        times(dataset, index)

    result = compute_scale(study, Units="CNTS", DecayCorrection="NONE", CorrectedImage=["ATTN"], edit=edit)
    expected = [1.5 * compute_suv_after(seconds) for seconds in (3899.9056, 4499.9056, 5099.9056) for _ in range(2)]
    assert result.factors == pytest.approx(expected, rel=1e-7)


def test_series_processed_later_counts_from_its_first_acquisition(study: StudyFolder) -> None:
    """Without FrameReferenceTime the series of 15:30, whose first bed is at 14:40, counts from 100 min."""
    result = compute_scale(study, SeriesTime="153000", edit=set_acquisition_times("144600", "144300", "144000"))
    assert result.factors[0] == pytest.approx(HUNDRED_MINUTES, rel=2e-6)
    (finding,) = result.findings
    assert str(finding) == (
        "PT/IM0001.dcm: found no FrameReferenceTime (0054,1300), expected the time from the start of the scan in ms; "
        "first AcquisitionTime is used as the start"
    )
    assert "100.0 min from injection to first AcquisitionTime (START)" in result.derivation


VENDORS = {
    "GE": (0x0009, "GEMS_PETD_01", 0x0D, "GE scan time (0009,100D)"),
    "SIEMENS": (0x0071, "SIEMENS MED PT", 0x22, "Siemens decay correction time (0071,1022)"),
}


def record_start(vendor: str, *, creator: bool = True) -> Any:
    """Return an edit that writes a vendor's private start of the scan, 14:00."""

    def edit(dataset: Dataset, index: int) -> None:
        group, name, element, _ = VENDORS[vendor]
        dataset.private_block(group, name, create=True).add_new(element, "DT", "20250301140000.00")
        if not creator:
            del dataset[group, 0x0010]

    return edit


@pytest.mark.parametrize("creator", [True, False])
@pytest.mark.parametrize("series", ["153000", "135500"])
@pytest.mark.parametrize("vendor", VENDORS)
def test_the_start_of_a_vendor_is_used(study: StudyFolder, vendor: str, series: str, creator: bool) -> None:
    """SeriesTime is later or earlier than 14:00, and AcquisitionTime, 14:30, is not used."""
    edit = record_start(vendor, creator=creator)
    result = compute_scale(study, SeriesTime=series, AcquisitionTime="143000", edit=edit)
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert VENDORS[vendor][3] in result.derivation


def test_a_private_attribute_of_another_vendor_is_not_read(study: StudyFolder) -> None:
    edit = record_start("SIEMENS", creator=False)
    result = compute_scale(study, SeriesTime="133000", AcquisitionTime="133000", Manufacturer="AGFA", edit=edit)
    assert result.factors[0] == pytest.approx(compute_suv_after(1800), rel=1e-9)


INJECTED = "RadiopharmaceuticalStartDateTime"
# Options of a PET that was scanned an hour after the injection.
AN_HOUR_AFTER: dict[str, dict[str, Any]] = {
    "the series began with the first of several beds": {"edit": set_acquisition_times("140000", "140300", "140600")},
    # Acquired from 23:50 to 00:10: the series comes first.
    "acquired after midnight without a date": {
        "SeriesTime": "235000",
        "AcquisitionDate": None,
        "edit": set_acquisition_times("235000", "001000"),
        "tracer": {"RadiopharmaceuticalStartTime": "225000"},
    },
    "acquired in another time zone": {
        "SeriesTime": "143000",
        "AcquisitionTime": None,
        "AcquisitionDateTime": "20250301130000+0000",
        "TimezoneOffsetFromUTC": "+0100",
    },
    "injected on a date": {"tracer": {INJECTED: "20250301130000.000000"}},
    "injected in the zone of the file": {
        "tracer": {INJECTED: "20250301130000+0100"},
        "TimezoneOffsetFromUTC": "+0100",
    },
    # 13:00 of the scanner's clock.
    "injected in another zone": {"tracer": {INJECTED: "20250301120000.00+0000"}, "TimezoneOffsetFromUTC": "+0100"},
    # Without a zone of the file the time is local.
    "injected in a zone without one of the file": {"tracer": {INJECTED: "20250301130000+0500"}},
}


@pytest.mark.parametrize("name", AN_HOUR_AFTER)
def test_an_hour_after_the_injection(study: StudyFolder, name: str) -> None:
    options = AN_HOUR_AFTER[name]
    if INJECTED in options.get("tracer", {}):
        options = options | {"tracer": options["tracer"] | {"RadiopharmaceuticalStartTime": None}}
    assert compute_factor(study, **options) == pytest.approx(AN_HOUR, rel=2e-6)


def test_injection_on_a_date_that_anonymisation_moved(study: StudyFolder) -> None:
    result = compute_scale(study, tracer={"RadiopharmaceuticalStartDateTime": "20190101130000"})
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert [(finding.found, finding.action) for finding in result.findings] == [
        (
            "RadiopharmaceuticalStartDateTime (0018,1078) 20190101130000 for a scan at 2025-03-01 14:00:00",
            "only its time of day is used",
        )
    ]


@pytest.mark.parametrize("date", [None, "20250301"])
def test_acquisition_by_its_date_and_time_in_one(study: StudyFolder, date: str | None) -> None:
    """Acquired at 14:00 by AcquisitionDateTime, an hour after the injection; SeriesTime belongs to a reconstruction."""
    times = {"AcquisitionTime": None, "AcquisitionDate": date, "AcquisitionDateTime": "20250301140000"}
    result = compute_scale(study, SeriesTime="143000", **times)
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    (finding,) = result.findings
    assert finding.action == "first AcquisitionTime is used as the start"
