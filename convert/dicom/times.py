"""Read dates and times of DICOM: the start of the scan, the average count of a slice, and the injection."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from contract.errors import Finding, InputError
from convert.dicom.files import DicomHeader, format_tag, read_shared

MAX_UPTAKE_TIME: Final = timedelta(hours=6)
_DAY: Final = timedelta(days=1)
# F-18 loses 0.01% of its activity in a second and 0.6% in a minute.
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
# Date of a time without a date; only differences of times are used.
_ANY_DATE: Final = "19000101"
_DATE_TIME: Final = re.compile(r"(\d{4})(\d{2})(\d{2}) *(\d{2}):?(\d{2})?:?(\d{2})?(?:\.(\d{1,6}))?")
_OFFSET: Final = re.compile(r"([+-])(\d{2})(\d{2})$")

# Private attributes with the time to which a vendor's scanner corrects: manufacturer, group, creator, element, name.
_VENDOR_STARTS: Final = (
    ("GE", 0x0009, "GEMS_PETD_01", 0x0D, "GE scan time (0009,100D)"),
    ("SIEMENS", 0x0071, "SIEMENS MED PT", 0x22, "Siemens decay correction time (0071,1022)"),
)


@dataclass(frozen=True)
class ScanStart:
    """Time to which a scanner with decay correction START corrects, and the attribute that holds it."""

    moment: datetime
    source: str
    findings: tuple[Finding, ...] = ()


def find_scan_start(headers: Sequence[DicomHeader], half_life_s: float) -> ScanStart:
    """Find the start of the scan, to which DecayCorrection START refers.

    The sources, in this order, are DecayCorrectionDateTime; the vendor's private attribute; SeriesTime, if the first
    acquisition began at this time, since a series that was processed later has a later SeriesTime; and AcquisitionTime
    plus the time of the average count minus FrameReferenceTime. Without FrameReferenceTime the start is SeriesTime or
    the first acquisition, whichever is earlier, with a warning.

    Raises:
        InputError: There is no SeriesTime and no AcquisitionTime, or slices disagree.
    """
    first = headers[0]
    recorded = _read_start(first)
    read_shared(headers, "a decay correction to", lambda header: (start := _read_start(header)) and start.moment)
    if recorded is not None:
        return recorded
    read_shared(headers, format_tag("SeriesTime"), lambda header: _read_moment(header, ("SeriesDate",), "SeriesTime"))
    series = _read_series_moment(first)
    acquisitions = [(moment, header) for header in headers if (moment := _find_acquisition(header, series)) is not None]
    if acquisitions and len(acquisitions) < len(headers):
        without_time = next(header for header in headers if _find_acquisition(header, series) is None)
        raise InputError(without_time.name, f"found no {format_tag('AcquisitionTime')}", "one, as in the other slices")
    first_acquisition = min((moment for moment, _ in acquisitions), default=None)
    if first_acquisition is None:
        if series is None:
            names = f"{format_tag('SeriesTime')} and no {format_tag('AcquisitionTime')}"
            raise InputError(first.name, f"found no {names}", "one")
        return ScanStart(series, "SeriesTime")
    if series is not None and abs(series - first_acquisition) <= _SECOND:
        return ScanStart(series, "SeriesTime")
    try:
        start = _compute_start(acquisitions, half_life_s)
    except _UnknownStartError as error:
        if series is not None and series < first_acquisition:
            start, source = series, "SeriesTime"
        else:
            start, source = first_acquisition, "first AcquisitionTime"
        expected = "the time from the start of the scan in ms"
        return ScanStart(start, source, (Finding(first.name, str(error), expected, f"{source} is used as the start"),))
    findings = _compare_series_time(first, series, start, half_life_s)
    return ScanStart(start, "AcquisitionTime and FrameReferenceTime", findings)


def _compare_series_time(
    first: DicomHeader, series: datetime | None, start: datetime, half_life_s: float
) -> tuple[Finding, ...]:
    """Return a finding if SeriesTime would give another SUV than the start that is used."""
    if series is None or abs(series - start) <= _MINUTE:
        return ()
    delay_s = (series - start).total_seconds()
    change = math.expm1(-math.log(2) * delay_s / half_life_s)
    difference = f"{abs(delay_s) / 60:.1f} min {'after' if delay_s > 0 else 'before'}"
    problem = f"{format_tag('SeriesTime')} {series:%H:%M:%S} is {difference}"
    problem += " the start by AcquisitionTime and FrameReferenceTime"
    return (Finding(first.name, problem, action=f"this start is used, SUV {change:+.1%} compared with SeriesTime"),)


def _read_start(header: DicomHeader) -> ScanStart | None:
    """Read the start from DecayCorrectionDateTime or the vendor's private attribute; None if both are absent."""
    text = header.text("DecayCorrectionDateTime")
    source = format_tag("DecayCorrectionDateTime")
    manufacturer = header.text("Manufacturer").upper()
    for vendor, group, creator, element, name in _VENDOR_STARTS:
        if not text and (vendor in manufacturer or not manufacturer):
            text = str(header.get_private(group, creator, element) or "")
            source = name
    if not text:
        return None
    return ScanStart(_convert_to_local(_parse_date_time(header, text, source), text, header), source)


class _UnknownStartError(Exception):
    """The start of the scan cannot be computed."""


def _compute_start(acquisitions: Sequence[tuple[datetime, DicomHeader]], half_life_s: float) -> datetime:
    """Compute the start from the acquisitions and their FrameReferenceTime.

    Raises:
        _UnknownStartError: An attribute is absent, or the slices disagree; the message is the problem of a finding.
    """
    starts = []
    for moment, header in acquisitions:
        reference_ms = header.get_number("FrameReferenceTime")
        delay = _compute_count_delay(header, half_life_s)
        if reference_ms is None or delay is None:
            missing = "FrameReferenceTime" if reference_ms is None else "ActualFrameDuration"
            raise _UnknownStartError(f"found no {format_tag(missing)}")
        starts.append(moment - timedelta(milliseconds=reference_ms) + (timedelta() if _is_ge(header) else delay))
    earliest, latest = min(starts), max(starts)
    first_acquisition = min(moment for moment, _ in acquisitions)
    is_plausible = first_acquisition - MAX_UPTAKE_TIME <= earliest <= first_acquisition + _SECOND
    if latest - earliest > 5 * _SECOND or not is_plausible:
        name = format_tag("FrameReferenceTime")
        raise _UnknownStartError(f"found {name} that puts the start at {earliest:%H:%M:%S} to {latest:%H:%M:%S}")
    return earliest


def _is_ge(header: DicomHeader) -> bool:
    """Return whether GE built the scanner.

    GE's FrameReferenceTime refers to the start of a frame; other vendors' FrameReferenceTime refers to the moment of
    its average count.
    """
    manufacturer = header.text("Manufacturer").upper()
    return manufacturer.split(" ")[0] in ("GE", "GEMS") or "GENERAL ELECTRIC" in manufacturer


def compute_count_moment(header: DicomHeader, half_life_s: float) -> datetime:
    """Compute the time of the average count of a slice, to which pixels without decay correction refer.

    Raises:
        InputError: Time or duration of the acquisition is absent.
    """
    moment = _find_acquisition(header, _read_series_moment(header))
    delay = _compute_count_delay(header, half_life_s)
    if moment is None or delay is None:
        missing = format_tag("AcquisitionTime" if moment is None else "ActualFrameDuration")
        raise InputError(header.name, f"found no {missing}", "time and duration of a PET without decay correction")
    return moment + delay


def _compute_count_delay(header: DicomHeader, half_life_s: float) -> timedelta | None:
    """Compute the time from the start of a frame until its activity equals its average (DICOM PS3.3, C.8.9.4.1.5).

    For a frame of T seconds and a decay constant L this time is ln(L T / (1 - exp(-L T))) / L, shortly before the
    middle of the frame.
    """
    duration_ms = header.get_number("ActualFrameDuration")
    if duration_ms is None or duration_ms <= 0:
        return None
    decay = math.log(2) * duration_ms / 1000 / half_life_s
    return timedelta(seconds=math.log(decay / -math.expm1(-decay)) * half_life_s / math.log(2))


def find_injection(header: DicomHeader, item: DicomHeader, scan: datetime) -> tuple[datetime, list[Finding]]:
    """Find the time of injection before `scan` in the item of the radiopharmaceutical; return it with warnings.

    A time without a date belongs to the day of the scan, or to the day before if it is later than the scan.

    Raises:
        InputError: The time is absent, or not within the six hours before the scan.
    """
    keyword = "RadiopharmaceuticalStartDateTime"
    text = item.text(keyword)
    if text:
        moment = _convert_to_local(_parse_date_time(item, text, format_tag(keyword)), text, header)
        if timedelta(0) <= scan - moment <= MAX_UPTAKE_TIME:
            return moment, []
        time_of_day = moment.time()
    else:
        keyword = "RadiopharmaceuticalStartTime"
        start = item.require(keyword, "the time of injection")
        time_of_day = _parse_date_time(item, _ANY_DATE + str(start).strip(), format_tag(keyword)).time()
    same_day = datetime.combine(scan.date(), time_of_day)
    injection_time = same_day if same_day <= scan else same_day - _DAY
    problem = f"{format_tag(keyword)} {text or time_of_day} for a scan at {scan}"
    if scan - injection_time > MAX_UPTAKE_TIME:
        raise InputError(header.name, f"found {problem}", "an injection at most 6 hours before the scan")
    findings = [Finding(header.name, problem, action="only its time of day is used")] if text else []
    return injection_time, findings


def _read_series_moment(header: DicomHeader) -> datetime | None:
    return _read_moment(header, ("SeriesDate", "AcquisitionDate", "AcquisitionDateTime", "StudyDate"), "SeriesTime")


def _find_acquisition(header: DicomHeader, series: datetime | None) -> datetime | None:
    """Return the start of a slice's acquisition, by AcquisitionTime or else by AcquisitionDateTime."""
    text = header.text("AcquisitionDateTime")
    if text and not header.text("AcquisitionTime"):
        return _convert_to_local(_parse_date_time(header, text, format_tag("AcquisitionDateTime")), text, header)
    moment = _read_moment(
        header, ("AcquisitionDate", "AcquisitionDateTime", "SeriesDate", "StudyDate"), "AcquisitionTime"
    )
    if moment and series and not text and not header.text("AcquisitionDate") and series - moment > _DAY / 2:
        return moment + _DAY  # The acquisition began after midnight.
    return moment


def _read_moment(header: DicomHeader, dates: Sequence[str], time: str) -> datetime | None:
    """Read a time on the first date that is present; only the date of a DateTime counts."""
    if not header.text(time):
        return None
    texts = (header.text(date).replace(".", "")[:8] for date in dates)
    date = next((text for text in texts if text), _ANY_DATE)
    return _parse_date_time(header, date + header.text(time), format_tag(time))


def _parse_date_time(header: DicomHeader, text: str, what: str) -> datetime:
    """Parse YYYYMMDDHH[MM[SS[.FFFFFF]]]; a time zone at the end is ignored."""
    match = _DATE_TIME.match(text)
    try:
        numbers = [int(part or 0) for part in match.groups()[:6]] if match else []
        year, month, day, hour, minute, second = numbers
        microsecond = int(((match and match[7]) or "0").ljust(6, "0"))
        return datetime(year, month, day, hour, minute, min(second, 59), microsecond)  # DICOM allows a leap second
    except ValueError:
        raise InputError(header.name, f"found {what} {text[:40]!r}", "a date and time") from None


def _convert_to_local(moment: datetime, text: str, header: DicomHeader) -> datetime:
    """Convert a moment to the time zone of the file; without TimezoneOffsetFromUTC it is assumed to be local."""
    offset_of_text = _OFFSET.search(text)
    offset_of_file = _OFFSET.search(header.text("TimezoneOffsetFromUTC"))
    if offset_of_text is None or offset_of_file is None:
        return moment
    return moment - _parse_offset(offset_of_text) + _parse_offset(offset_of_file)


def _parse_offset(match: re.Match[str]) -> timedelta:
    sign = -1 if match[1] == "-" else 1
    return sign * timedelta(hours=int(match[2]), minutes=int(match[3]))
