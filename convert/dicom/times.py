"""Dates and times of DICOM: start of the scan and time of injection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from contract.errors import Finding, InputError
from convert.dicom.headers import DicomHeader, tag_name

LONGEST_UPTAKE: Final = timedelta(hours=6)
_DAY: Final = timedelta(days=1)
_ANY_DATE: Final = "19000101"  # only differences of times count
_DATE_TIME: Final = re.compile(r"(\d{4})(\d{2})(\d{2}) *(\d{2}):?(\d{2})?:?(\d{2})?(?:\.(\d{1,6}))?")
_OFFSET: Final = re.compile(r"([+-])(\d{2})(\d{2})$")


def scan_start(headers: Sequence[DicomHeader]) -> tuple[datetime, str]:
    """Time to which a scanner with decay correction START corrects, and the attribute that gave it.

    The series time, unless it is later than the first acquisition: then the series was processed later, and GE's
    private scan time counts, or else the first acquisition.

    Raises:
        InputError: no SeriesTime and no AcquisitionTime.
    """
    first = headers[0]
    series = _moment(first, ("SeriesDate", "AcquisitionDate", "StudyDate"), "SeriesTime")
    acquired = min(filter(None, (_acquired(header, series) for header in headers)), default=None)
    if series is not None and (acquired is None or series <= acquired):
        return series, "SeriesTime"
    if acquired is None:
        raise InputError(first.name, f"found no {tag_name('SeriesTime')} and no {tag_name('AcquisitionTime')}", "one")
    ge_scan = first.private(0x0009, "GEMS_PETD_01", 0x0D)
    if series is not None and ge_scan is not None:
        return _date_time(first, str(ge_scan), "GE scan time (0009,100D)"), "GE scan time (0009,100D)"
    return acquired, "first AcquisitionTime"


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


def _acquired(header: DicomHeader, series: datetime | None) -> datetime | None:
    moment = _moment(header, ("AcquisitionDate", "SeriesDate", "StudyDate"), "AcquisitionTime")
    if moment and series and not header.text("AcquisitionDate") and series - moment > _DAY / 2:
        return moment + _DAY  # past midnight
    return moment


def _moment(header: DicomHeader, dates: Sequence[str], time: str) -> datetime | None:
    if not header.text(time):
        return None
    date = next(filter(None, map(header.text, dates)), _ANY_DATE)
    return _date_time(header, date.replace(".", "") + header.text(time), tag_name(time))


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
