"""`hecktor predict` on many cases: networks are loaded once, and each case gets a mask, a record and a table row."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from algorithm.case.inputs import TABLE_COLUMNS, BatchCase
from algorithm.predictor import Predictor
from algorithm.request import PROBABILITY_FILES
from contract import labels
from contract.editions import Algorithm
from contract.entry import log_to_stderr
from contract.errors import HecktorError, InputError, OutputError, TimeLimitError
from contract.images.volumes import limit_simpleitk_threads, write_mask
from contract.io.files import read_json, write_json
from contract.io.tables import write_csv
from contract.packages import PackageIdentity, open_package
from contract.patient import format_names

LOGGER = logging.getLogger("hecktor")
TABLE: Final = "answers.csv"
RECORDS: Final = "records"
ERROR: Final = "error"


class BatchFolder:
    """The output folder of many cases: a mask and a record for each case, and one table.

    `probabilities_root` contains a folder of probabilities for each case; None if they were not requested.
    """

    def __init__(self, root: Path, algorithm: Algorithm, probabilities_root: Path | None) -> None:
        self.root, self.algorithm, self.probabilities_root = root, algorithm, probabilities_root
        self.rows: dict[str, dict[str, Any]] = {}

    def mask(self, patient_id: str) -> Path:
        """Return the path of a case's mask."""
        return self.root / f"{patient_id}.nii.gz"

    def record(self, patient_id: str) -> Path:
        """Return the path of a case's record."""
        return self.root / RECORDS / f"{patient_id}.json"

    def probabilities(self, patient_id: str) -> Path | None:
        """Return the folder of a case's probabilities; None if they were not requested."""
        return None if self.probabilities_root is None else self.probabilities_root / patient_id

    def _list_images(self, patient_id: str) -> list[Path]:
        """List the images that a run writes for a case: the mask of a task with a mask, and requested probabilities."""
        folder = self.probabilities(patient_id)
        masks = [] if self.algorithm.mask_spec is None else [self.mask(patient_id)]
        return [*masks, *([] if folder is None else [folder / name for name in PROBABILITY_FILES])]

    def remove(self, patient_id: str) -> None:
        """Remove the files that an earlier run wrote for a case; raise `OutputError` if that fails."""
        for path in (self.record(patient_id), self.mask(patient_id), *self._list_images(patient_id)):
            try:
                path.unlink(missing_ok=True)
            except OSError as problem:
                fault = f"{path.name} cannot be removed ({problem.strerror})"
                raise OutputError("--output", fault, "a writable folder") from None

    def is_finished(self, patient_id: str, package: PackageIdentity) -> bool:
        """Return whether an earlier run finished a case with this task and package; if so, keep its row of the table.

        The record is written last, so a case with a record and all images is finished. A damaged record does not count.
        """
        with suppress(HecktorError, AttributeError, KeyError, TypeError):
            record = read_json(self.record(patient_id))
            same = record["task"] == self.algorithm.name and record["package"] == package.model_dump()
            if same and all(path.is_file() for path in self._list_images(patient_id)):
                self.rows[patient_id] = make_row(self.algorithm, record)
                return True
        return False

    def write_table(self, cases: Sequence[BatchCase]) -> None:
        """Write the rows so far, in the order of the cases."""
        rows = [
            {TABLE_COLUMNS[0]: case.patient_id, **self.rows[case.patient_id]}
            for case in cases
            if case.patient_id in self.rows
        ]
        columns = [TABLE_COLUMNS[0], *dict.fromkeys(name for row in rows for name in row if name != TABLE_COLUMNS[0])]
        write_csv(self.root / TABLE, [*(name for name in columns if name != ERROR), ERROR], rows)


def make_row(algorithm: Algorithm, record: Mapping[str, Any]) -> dict[str, Any]:
    """Make the row of an answered case from its record.

    The columns of answers have the names that `hecktor evaluate --predictions` reads.
    """
    row: dict[str, Any] = {}
    for answer in algorithm.head_specs:
        is_risk = answer.kind == "risk" and answer.direction == "risk"
        row["risk" if is_risk else answer.name] = record["answers"][answer.name]
        if len(algorithm.head_specs) == 1 and answer.name in record["probabilities"]:
            row["probability"] = record["probabilities"][answer.name]
    for name in labels.LESIONS:
        lesions = record["lesions"].get(name, {})
        row |= {f"{name} ml": lesions.get("volume_ml", ""), f"{name} lesions": lesions.get("count", "")}
    row["mask by"] = record["segmented_by"] or ""
    row["passes"] = record["passes_done"]
    row["fallbacks"] = " ".join(record["fallbacks"])
    row["warnings"] = len(record["notices"])
    row["seconds"] = round(sum(record["seconds"].values()), 1)
    return row


def run_batch(arguments: argparse.Namespace, cases: Sequence[BatchCase]) -> int:
    """Answer the cases of `--ct`; return 0 if each case has an answer, otherwise 1.

    Raises:
        HecktorError: The package, the device or the output folder cannot be used, or the run was interrupted.
    """
    log_to_stderr()
    limit_simpleitk_threads()
    with ExitStack() as stack:
        package = None if arguments.model is None else stack.enter_context(open_package(arguments.model))
        predictor = Predictor(
            package,
            arguments.edition,
            arguments.task,
            arguments.device,
            passes=arguments.passes,
            time_limit_s=arguments.time_limit,
            code=arguments.code,
        )
        algorithm = _select_answers(predictor.algorithm, cases, arguments.task)
        folder = BatchFolder(arguments.output, algorithm, arguments.probabilities)
        waiting = _list_waiting(folder, cases, predictor.identity, resume=arguments.resume)
        LOGGER.info("%d cases, %d to answer", len(cases), len(waiting))
        with _log_errors_only(), _handle_sigterm():
            try:
                _answer_cases(predictor, folder, waiting)
            except KeyboardInterrupt:
                progress = f"{len(folder.rows)} of {len(cases)} cases are finished"
                raise HecktorError("interrupted", progress, "the same command with --resume") from None
            finally:
                folder.write_table(cases)
    failed = [case.patient_id for case in cases if folder.rows[case.patient_id].get(ERROR)]
    sys.stdout.write(f"{len(cases) - len(failed)} of {len(cases)} cases answered, table in {folder.root / TABLE}\n")
    if failed:
        sys.stdout.write(f"failed: {format_names(failed)}; the column {ERROR} of the table has the reasons\n")
    return 1 if failed else 0


def _select_answers(algorithm: Algorithm, cases: Sequence[BatchCase], task: str | None) -> Algorithm:
    """Return the algorithm, reduced to its mask if no task was named and no case has clinical variables."""
    if task is not None or algorithm.mask_spec is None or any(case.has_ehr for case in cases):
        return algorithm
    return algorithm.model_copy(update={"answers": (algorithm.mask_spec,)})


def _list_waiting(
    folder: BatchFolder, cases: Sequence[BatchCase], package: PackageIdentity, *, resume: bool
) -> list[BatchCase]:
    """List the cases to answer, and remove their earlier files; with `resume`, finished cases are left out."""
    waiting = [case for case in cases if not (resume and folder.is_finished(case.patient_id, package))]
    for case in waiting:
        folder.remove(case.patient_id)
    return waiting


def _answer_cases(predictor: Predictor, folder: BatchFolder, cases: Sequence[BatchCase]) -> None:
    """Answer each case and keep its row of the table; the row of a failed case has the reason."""
    for case in tqdm(cases, desc="cases", unit="case", disable=None):
        started_s = time.monotonic()
        try:
            folder.rows[case.patient_id] = _answer_case(predictor, folder, case)
            outcome = f"answered in {time.monotonic() - started_s:.1f} s"
        except (InputError, TimeLimitError) as problem:
            folder.rows[case.patient_id] = {ERROR: str(problem)}
            outcome = f"failed: {problem}"
        except HecktorError:
            raise  # an error of the package, the device or the output would fail every case
        except Exception as problem:
            LOGGER.exception("a bug or too little memory, not an error in %s", case.patient_id)
            folder.rows[case.patient_id] = {ERROR: f"{type(problem).__name__}: {problem}"}
            outcome = f"failed: {type(problem).__name__}"
        tqdm.write(f"{case.patient_id}: {outcome}", file=sys.stderr)


def _answer_case(predictor: Predictor, folder: BatchFolder, case: BatchCase) -> dict[str, Any]:
    """Answer one case, write its mask and then its record; return its row of the table.

    Raises:
        InputError: A file of the case is absent or cannot be used.
    """
    if folder.algorithm.head_specs and not case.has_ehr:
        names = ", ".join(answer.name for answer in folder.algorithm.head_specs)
        raise InputError("EHR", "no clinical variables", f"those for {names}: --ehr FOLDER with CASE.json, or a table")
    with tempfile.TemporaryDirectory(prefix="hecktor-ehr-") as temporary:
        ehr = case.ehr
        if case.clinical:
            ehr = Path(temporary, "ehr.json")
            write_json(ehr, dict(case.clinical))
        probabilities = folder.probabilities(case.patient_id)
        prediction = predictor.predict_files(case.ct, case.pet, ehr, probabilities_dir=probabilities)
    record = prediction.record.as_json()
    if prediction.mask is not None:
        write_mask(folder.mask(case.patient_id), prediction.mask, prediction.geometry)
    write_json(folder.record(case.patient_id), record)
    return make_row(folder.algorithm, record)


@contextmanager
def _log_errors_only() -> Iterator[None]:
    """Log only errors, so that the lines of the cases do not break the progress bar; the records have the warnings."""
    before = LOGGER.level
    LOGGER.setLevel(logging.ERROR)
    try:
        yield
    finally:
        LOGGER.setLevel(before)


@contextmanager
def _handle_sigterm() -> Iterator[None]:
    """Unblock SIGTERM and let it end the block as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
