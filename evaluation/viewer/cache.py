"""The files of cases, computed when they are first asked for and cached in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Final

from evaluation.viewer.case import build_case
from evaluation.viewer.cohort import CaseSources

# Some 20 cases of a head and neck. Nothing of a patient is written to a disk.
CACHE_BYTES: Final = 512 * 2**20


class CaseCache:
    """The files of each case, the most recently used ones in memory; safe to use from several threads."""

    def __init__(self, cases: Mapping[str, CaseSources], most_bytes: int = CACHE_BYTES) -> None:
        self._cases = cases
        self._most_bytes = most_bytes
        self._files: OrderedDict[str, dict[str, bytes]] = OrderedDict()
        self._of_case = {case: Lock() for case in cases}
        self._building, self._changing = Lock(), Lock()

    def files(self, case: str) -> Mapping[str, bytes]:
        """The files of a case of the cohort by name.

        Raises:
            HecktorError: the case cannot be shown; it is tried again the next time.
        """
        # Requests for one case wait for the first; one case at a time is computed, which bounds the memory.
        with self._of_case[case]:
            files = self._cached(case)
            if files is None:
                with self._building:
                    files = build_case(self._cases[case])
                self._store(case, files)
            return files

    def _cached(self, case: str) -> dict[str, bytes] | None:
        with self._changing:
            if case in self._files:
                self._files.move_to_end(case)
            return self._files.get(case)

    def _store(self, case: str, files: dict[str, bytes]) -> None:
        with self._changing:
            self._files[case] = files
            while len(self._files) > 1 and self._size() > self._most_bytes:
                self._files.popitem(last=False)

    def _size(self) -> int:
        return sum(len(content) for files in self._files.values() for content in files.values())
