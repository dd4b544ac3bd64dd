"""Dates and times of DICOM: start of the scan, average count of a slice and time of injection."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from contract.errors import Finding, InputError
from convert.dicom.files import DicomHeader, read_shared, tag_name

LONGEST_UPTAKE: Final = timedelta(hours=6)
_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)  # 0.01% of the activity of F-18
_MINUTE: Final = timedelta(minutes=1)  # 0.6% of it
_ANY_DATE: Final = "19000101"  # only differences of times count
_DATE_TIME: Final = re.compile(r"(\d{4})(\d{2})(\d{2}) *(\d{2}):?(\d{2})?:?(\d{2})?(?:\.(\d{1,6}))?")
_OFFSET: Final = re.compile(r"([+-])(\d{2})(\d{2})$")


# Private attributes with the time to which a vendor's scanner corrects: manufacturer, group, creator, element, name.
_VENDOR_STARTS: Final = (
    ("GE", 0x0009, "GEMS_PETD_01", 0x0D, "GE scan time (0009,100D)"),
    ("SIEMENS", 0x0071, "SIEMENS MED PT", 0x22, "Siemens decay correction time (0071,1022)"),
)


@dataclass(frozen=True)
class ScanStart:
    """Time to which a scanner with decay correction START corrects, and the attribute that gave it."""

    moment: datetime
    source: str
    findings: tuple[Finding, ...] = ()


def scan_start(headers: Sequence[DicomHeader], half_life_s: float) -> ScanStart:
    """Start of the scan, to which DecayCorrection START refers.

    In this order: DecayCorrectionDateTime; the vendor's private attribute; SeriesTime, if the first acquisition began
    then; AcquisitionTime plus the time of the average count less FrameReferenceTime. A series that was processed later
    has a later SeriesTime. Without FrameReferenceTime, the earlier one of SeriesTime and the first acquisition, with a
    warning.

    Raises:
        InputError: no SeriesTime and no AcquisitionTime, or slices that disagree.
    """
    first = headers[0]
    recorded = _recorded_start(first)
    read_shared(headers, "a decay correction to", lambda header: (start := _recorded_start(header)) and start.moment)
    if recorded is not None:
        return recorded
    read_shared(headers, tag_name("SeriesTime"), lambda header: _moment(header, ("SeriesDate",), "SeriesTime"))
    series = _series_moment(first)
    acquisitions = [(moment, header) for header in headers if (moment := _acquired(header, series)) is not None]
    if acquisitions and len(acquisitions) < len(headers):
        lacking = next(header for header in headers if _acquired(header, series) is None)
        raise InputError(lacking.name, f"found no {tag_name('AcquisitionTime')}", "one, as the other slices have")
    acquired = min((moment for moment, _ in acquisitions), default=None)
    if acquired is None:
        if series is None:
            names = f"{tag_name('SeriesTime')} and no {tag_name('AcquisitionTime')}"
            raise InputError(first.name, f"found no {names}", "one")
        return ScanStart(series, "SeriesTime")
    if series is not None and abs(series - acquired) <= _SECOND:
        return ScanStart(series, "SeriesTime")
    computed = _computed_start(acquisitions, half_life_s)
    if isinstance(computed, datetime):
        findings = _overruled(first, series, computed, half_life_s)
        return ScanStart(computed, "AcquisitionTime and FrameReferenceTime", findings)
    is_series = series is not None and series < acquired
    source = "SeriesTime" if is_series else "first AcquisitionTime"
    finding = Finding(
        first.name, computed, "the time from the start of the scan in ms", f"{source} is taken as the start"
    )
    return ScanStart(series if series is not None and is_series else acquired, source, (finding,))


def _overruled(first: DicomHeader, series: datetime | None, start: datetime, half_life_s: float) -> tuple[Finding, ...]:
    """A SeriesTime that would give another SUV than the start that is used."""
    if series is None or abs(series - start) <= _MINUTE:
        return ()
    later = (series - start).total_seconds()
    change = math.expm1(-math.log(2) * later / half_life_s)
    found = (
        f"{tag_name('SeriesTime')} {series:%H:%M:%S} is {abs(later) / 60:.1f} min {'after' if later > 0 else 'before'}"
    )
    why = f"{found} the start by AcquisitionTime and FrameReferenceTime"
    return (Finding(first.name, why, action=f"the latter is used, SUV {change:+.1%} against SeriesTime"),)


def _recorded_start(header: DicomHeader) -> ScanStart | None:
    text, source = header.text("DecayCorrectionDateTime"), tag_name("DecayCorrectionDateTime")
    manufacturer = header.text("Manufacturer").upper()
    for vendor, group, creator, element, name in _VENDOR_STARTS:
        if not text and (vendor in manufacturer or not manufacturer):
            text, source = str(header.private(group, creator, element) or ""), name
    return ScanStart(_local(_date_time(header, text, source), text, header), source) if text else None


def _computed_start(acquisitions: Sequence[tuple[datetime, DicomHeader]], half_life_s: float) -> datetime | str:
    """Start by the acquisitions and their FrameReferenceTime, or why it cannot be known."""
    starts = []
    for moment, header in acquisitions:
        reference_ms, average = header.optional_number("FrameReferenceTime"), _average_count(header, half_life_s)
        if reference_ms is None or average is None:
            missing = "FrameReferenceTime" if reference_ms is None else "ActualFrameDuration"
            return f"found no {tag_name(missing)}"
        starts.append(moment - timedelta(milliseconds=reference_ms) + (timedelta() if _is_ge(header) else average))
    acquired = min(moment for moment, _ in acquisitions)
    if max(starts) - min(starts) > 5 * _SECOND or not acquired - LONGEST_UPTAKE <= min(starts) <= acquired + _SECOND:
        name = tag_name("FrameReferenceTime")
        return f"found {name} that puts the start at {min(starts):%H:%M:%S} to {max(starts):%H:%M:%S}"
    return min(starts)


def _is_ge(header: DicomHeader) -> bool:
    """GE's FrameReferenceTime is that of the frame's start, that of others of its average count."""
    manufacturer = header.text("Manufacturer").upper()
    return manufacturer.split(" ")[0] in ("GE", "GEMS") or "GENERAL ELECTRIC" in manufacturer


def count_moment(header: DicomHeader, half_life_s: float) -> datetime:
    """Time of the average count of a slice, for which pixels without decay correction are true.

    Raises:
        InputError: no time and duration of the acquisition.
    """
    series = _series_moment(header)
    moment, average = _acquired(header, series), _average_count(header, half_life_s)
    if moment is None or average is None:
        missing = tag_name("AcquisitionTime" if moment is None else "ActualFrameDuration")
        raise InputError(header.name, f"found no {missing}", "time and duration of a PET without decay correction")
    return moment + average


def _average_count(header: DicomHeader, half_life_s: float) -> timedelta | None:
    """From the start of a frame to the time at which its activity equals its average (DICOM PS3.3, C.8.9.4.1.5).

    A frame of T seconds with decay constant L has it after ln(L T / (1 - exp(-L T))) / L, shortly before its middle.
    """
    duration_ms = header.optional_number("ActualFrameDuration")
    if duration_ms is None or duration_ms <= 0:
        return None
    decay = math.log(2) * duration_ms / 1000 / half_life_s
    return timedelta(seconds=math.log(decay / -math.expm1(-decay)) * half_life_s / math.log(2))


def injection(header: DicomHeader, item: DicomHeader, scan: datetime) -> tuple[datetime, list[Finding]]:
    """Time of injection before `scan`, from the item of the radiopharmaceutical, and warnings.

    A time without a date belongs to the day of the scan, or to the day before if it is later than the scan.

    Raises:
        InputError: absent, or not within the six hours before the scan.
    """
    findings: list[Finding] = []
    text, keyword = item.text("RadiopharmaceuticalStartDateTime"), "RadiopharmaceuticalStartDateTime"
    if text:
        moment = _local(_date_time(item, text, tag_name(keyword)), text, header)
        if timedelta(0) <= scan - moment <= LONGEST_UPTAKE:
            return moment, findings
        time_of_day = moment.time()
    else:
        keyword = "RadiopharmaceuticalStartTime"
        start = item.required(keyword, "the time of injection")
        time_of_day = _date_time(item, _ANY_DATE + str(start).strip(), tag_name(keyword)).time()
    same_day = datetime.combine(scan.date(), time_of_day)
    injected = same_day if same_day <= scan else same_day - _DAY
    if scan - injected > LONGEST_UPTAKE:
        found = f"{tag_name(keyword)} {text or time_of_day} for a scan at {scan}"
        raise InputError(header.name, f"found {found}", "an injection at most 6 hours before the scan")
    if text:
        found = f"{tag_name(keyword)} {text} for a scan at {scan}"
        findings.append(Finding(header.name, found, action="only its time of day is used"))
    return injected, findings


def _series_moment(header: DicomHeader) -> datetime | None:
    return _moment(header, ("SeriesDate", "AcquisitionDate", "AcquisitionDateTime", "StudyDate"), "SeriesTime")


def _acquired(header: DicomHeader, series: datetime | None) -> datetime | None:
    """Return the start of a slice's acquisition, by AcquisitionTime or else by AcquisitionDateTime."""
    text = header.text("AcquisitionDateTime")
    if text and not header.text("AcquisitionTime"):
        return _local(_date_time(header, text, tag_name("AcquisitionDateTime")), text, header)
    moment = _moment(header, ("AcquisitionDate", "AcquisitionDateTime", "SeriesDate", "StudyDate"), "AcquisitionTime")
    if moment and series and not text and not header.text("AcquisitionDate") and series - moment > _DAY / 2:
        return moment + _DAY  # past midnight
    return moment


def _moment(header: DicomHeader, dates: Sequence[str], time: str) -> datetime | None:
    """Return a time on the first date that is present; of a DateTime only the date counts."""
    if not header.text(time):
        return None
    texts = (header.text(date).replace(".", "")[:8] for date in dates)
    date = next((text for text in texts if text), _ANY_DATE)
    return _date_time(header, date + header.text(time), tag_name(time))


def _date_time(header: DicomHeader, text: str, what: str) -> datetime:
    """Read YYYYMMDDHH[MM[SS[.FFFFFF]]]; a time zone at the end is left out."""
    match = _DATE_TIME.match(text)
    try:
        numbers = [int(part or 0) for part in match.groups()[:6]] if match else []
        year, month, day, hour, minute, second = numbers
        microsecond = int(((match and match[7]) or "0").ljust(6, "0"))
        return datetime(year, month, day, hour, minute, min(second, 59), microsecond)  # DICOM allows a leap second
    except ValueError:
        raise InputError(header.name, f"found {what} {text[:40]!r}", "a date and time") from None


def _local(moment: datetime, text: str, header: DicomHeader) -> datetime:
    """The moment in the time zone of the file; without TimezoneOffsetFromUTC it is taken as local."""
    own, zone = _OFFSET.search(text), _OFFSET.search(header.text("TimezoneOffsetFromUTC"))
    return moment if own is None or zone is None else moment - _offset(own) + _offset(zone)


def _offset(match: re.Match[str]) -> timedelta:
    sign = -1 if match[1] == "-" else 1
    return sign * timedelta(hours=int(match[2]), minutes=int(match[3]))
