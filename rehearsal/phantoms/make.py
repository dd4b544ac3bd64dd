"""Make phantoms: a whole cohort on disk, in parallel and resumable, or one patient in memory.

A cohort has the layout of the challenge's release, or the layout in which the platform mounts a case.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import SimpleITK as sitk

from contract.editions import Algorithm, Edition, Socket, load_edition
from contract.editions.inputs import CONTOURS, CT, CT_PLANNING, EHR, MR, PET, RT_DOSE
from contract.errors import InputError, OutputError, make_write_error
from contract.images.volumes import Volume, to_sitk, write_mask, write_volume
from contract.io import files
from contract.io.tables import write_csv
from contract.platform import INPUTS_JSON
from contract.predictions import make_socket_entry
from contract.processes import WorkerDeath, map_in_processes
from contract.release.layout import MASK_ROLE, fill_template, find_role, format_table_name, make_file_templates
from rehearsal.phantoms.centres import CENTRES, FIELDS_OF_VIEW
from rehearsal.phantoms.cohort import (
    CohortOptions,
    PhantomCase,
    coarsen_protocol,
    draw_cases,
    make_case,
    widen_ct_pixels,
)
from rehearsal.phantoms.lesions import n_stage, t_stage
from rehearsal.phantoms.rendering import Rendered, Visits, render, render_visits, resample
from rehearsal.phantoms.tables import TRUTH_CSV, make_platform_ehr, make_suv_factor_rows, make_table_row, make_truth_row

SUV_FACTORS_CSV: Final = "suv_conversion_tags.csv"
# A fixed namespace makes the same names on every machine.
UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "phantoms.hecktor.invalid")
# Steps of PET values in a release on one grid, so that resampled images compress well.
SUV_STEP: Final = 1 / 128


def convert_to_recorded_unit(case: PhantomCase, edition: Edition, pet: Volume) -> Volume:
    """Convert a PET to the unit that the centre exported: SUV, or whole Bq/ml for some patients of some editions."""
    if case.activity is None or not edition.suv_factor:
        return pet
    return Volume(np.rint(pet.array / np.float32(case.activity.suv_factor)), pet.geometry)


def write_nifti(path: Path, volume: Volume) -> None:
    """Write `.nii.gz` at the fastest compression, always with the same bytes; SimpleITK uses a slow level.

    Raises:
        OutputError: The file cannot be written.
    """
    plain = path.with_name(path.name.removesuffix(".gz"))
    compressor = zlib.compressobj(level=1, wbits=31)
    try:
        sitk.WriteImage(to_sitk(volume), files.format_utf8_path(plain, OutputError))
        _check_complete(plain, volume)
        with plain.open("rb") as source, path.open("wb") as target:
            for block in iter(lambda: source.read(1 << 20), b""):
                target.write(compressor.compress(block))
            target.write(compressor.flush())
        plain.unlink()
    except (OSError, RuntimeError) as error:
        raise make_write_error(path.name, error) from None


def _check_complete(plain: Path, volume: Volume) -> None:
    """Raise the `OSError` of a full disk if a file is shorter than its voxels, since ITK does not report it."""
    if plain.stat().st_size < volume.array.nbytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def link_or_copy(source: Path, target: Path) -> None:
    """Make a hard link, or a copy if the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class ReleaseWriter:
    """Writes the layout of a release: `<folder>/<ID>/<ID>__CT.nii.gz` and so on, with one table in each folder.

    The folders are `Task N` for several algorithms and `<title> Training Data` for one algorithm. In the latter folder
    CT, PET and mask share one grid, and a table contains the factors of PETs in Bq/ml. An edition of MR has one folder
    and the files that its inputs name.
    """

    edition: Edition

    @property
    def on_one_grid(self) -> bool:
        """Return whether CT and PET share a grid."""
        return len(self.edition.algorithms) == 1

    def is_complete(self, root: Path, case: PhantomCase) -> bool:
        """Return whether all folders of the patient exist."""
        return all((self._folder(root, task) / case.patient_id).is_dir() for task in self.edition.algorithms)

    def write_case(self, root: Path, case: PhantomCase, rendered: Rendered | Visits) -> None:
        """Write a patient's images for all tasks; equal images are hard links."""
        if isinstance(rendered, Visits):
            self._write_visits(root, case, rendered)
            return
        if self.on_one_grid:
            rendered = replace(rendered, pet=_round_pet(resample(rendered.pet, rendered.ct.geometry)))
        rendered = replace(rendered, pet=convert_to_recorded_unit(case, self.edition, rendered.pet))
        for task in self.edition.algorithms:
            with files.atomic_folder(self._folder(root, task) / case.patient_id) as folder:
                for name, volume in _list_release_images(case, task, rendered).items():
                    first = self._folder(root, self.edition.algorithms[0]) / case.patient_id / name
                    if first.is_file():
                        link_or_copy(first, folder / name)
                    else:
                        write_nifti(folder / name, volume)

    def _write_visits(self, root: Path, case: PhantomCase, visits: Visits) -> None:
        with files.atomic_folder(self._folder(root, self.edition.algorithms[0]) / case.patient_id) as folder:
            for task in self.edition.algorithms:
                names = make_file_templates(self.edition, task)
                images = {
                    find_role(name): visits.select_volume(source)
                    for name, source in task.inputs.items()
                    if source.is_image
                }
                for role, volume in {**images, MASK_ROLE: visits.select_mask(task.scan)}.items():
                    path = folder / fill_template(names[role], case.patient_id)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if not path.is_file():
                        write_nifti(path, volume)

    def write_tables(self, root: Path, cases: Sequence[PhantomCase]) -> None:
        """Write one table for each task, and the table of the factors of PETs in Bq/ml."""
        if EHR not in self.edition.inputs:
            return
        for task in self.edition.algorithms:
            rows = [make_table_row(case, self.edition, task) for case in cases]
            name = format_table_name(self.edition.title, _find_table_number(self.edition, task))
            write_csv(self._folder(root, task) / name, list(rows[0]), rows)
        factors = make_suv_factor_rows(cases) if self.edition.suv_factor else []
        if factors:
            folder = self._folder(root, self.edition.algorithms[0])
            write_csv(folder / SUV_FACTORS_CSV, list(factors[0]), factors)

    def _folder(self, root: Path, task: Algorithm) -> Path:
        return root / (
            f"Task {task.number}" if self.edition.has_task_folders else f"{self.edition.title} Training Data"
        )


def _find_table_number(edition: Edition, task: Algorithm) -> int | None:
    return None if len(edition.algorithms) == 1 else task.number


def _round_pet(pet: Volume) -> Volume:
    return Volume(np.rint(pet.array / np.float32(SUV_STEP)) * np.float32(SUV_STEP), pet.geometry)


def _list_release_images(case: PhantomCase, task: Algorithm, rendered: Rendered) -> dict[str, Volume]:
    """List a patient's images by file name."""
    name = case.patient_id
    images = {f"{name}__CT.nii.gz": rendered.ct, f"{name}__PT.nii.gz": rendered.pet}
    inputs = {*task.inputs, *task.optional_inputs}
    if task.mask_spec is not None or CONTOURS in inputs:
        images[f"{name}.nii.gz"] = rendered.mask
    if CT_PLANNING in inputs and rendered.planning is not None:
        images[f"{name}__CTPlanning.nii.gz"] = rendered.planning
    if RT_DOSE in inputs and rendered.dose is not None:
        images[f"{name}__RTDOSE.nii.gz"] = rendered.dose
    return images


@dataclass(frozen=True)
class PlatformWriter:
    """Writes the platform's layout: `<ID>/input/` as it is mounted, and `ground_truth/` as the evaluation reads it."""

    edition: Edition
    on_one_grid = False

    def is_complete(self, root: Path, case: PhantomCase) -> bool:
        """Return whether the patient's folder and reference masks exist."""
        folders = (root / self.edition.get_reference_folder(task) for task in self.edition.algorithms)
        has_masks = all((folder / f"{case.patient_id}.mha").is_file() for folder in folders)
        return (root / case.patient_id).is_dir() and has_masks

    def write_case(self, root: Path, case: PhantomCase, rendered: Rendered | Visits) -> None:
        """Write a patient's input folder and reference masks."""
        name = case.patient_id
        sockets = self.edition.inputs
        if isinstance(rendered, Rendered):
            rendered = replace(rendered, pet=convert_to_recorded_unit(case, self.edition, rendered.pet))
        for task in self.edition.algorithms:
            mask = rendered.mask if isinstance(rendered, Rendered) else rendered.select_mask(task.scan)
            write_mask(root / self.edition.get_reference_folder(task) / f"{name}.mha", mask.array, mask.geometry)
        entries: list[dict[str, Any]] = []
        with files.atomic_folder(root / name) as folder:
            for socket, volume in self._images(rendered):
                image = str(uuid.uuid5(UUID_NAMESPACE, f"{case.noise_seed}/{name}/{socket.slug}"))
                write_volume(socket.path_under(folder / "input") / f"{image}.mha", volume)
                entries.append(make_socket_entry(socket, len(entries) + 1, image=(image, f"{name}.mha")))
            if EHR in sockets:
                ehr = make_platform_ehr(case, self.edition)
                entries.append(make_socket_entry(sockets[EHR], len(entries) + 1, value=ehr))
                files.write_json(sockets[EHR].path_under(folder / "input"), ehr)
            files.write_json(folder / "input" / INPUTS_JSON, entries)

    def _images(self, rendered: Rendered | Visits) -> list[tuple[Socket, Volume]]:
        if isinstance(rendered, Visits):
            sources = [source for source in self.edition.inputs.values() if source.is_image]
            return [(source, rendered.select_volume(source)) for source in sources]
        images = {CT: rendered.ct, PET: rendered.pet, CONTOURS: rendered.mask}
        if rendered.planning is not None and rendered.dose is not None:
            images |= {CT_PLANNING: rendered.planning, RT_DOSE: rendered.dose}
        sockets = self.edition.inputs
        return [(sockets[name], volume) for name, volume in images.items() if name in sockets]

    def write_tables(self, root: Path, cases: Sequence[PhantomCase]) -> None:
        """Write a table of the outcomes of each task with risks or classes, next to the reference masks."""
        for task in self.edition.algorithms:
            if task.head_specs:
                rows = [make_table_row(case, self.edition, task) for case in cases]
                path = (
                    root
                    / "ground_truth"
                    / format_table_name(self.edition.title, _find_table_number(self.edition, task))
                )
                write_csv(path, list(rows[0]), rows)


Layout = ReleaseWriter | PlatformWriter
LAYOUTS: Final[dict[str, type[Layout]]] = {"release": ReleaseWriter, "platform": PlatformWriter}


def render_for_edition(edition: Edition, case: PhantomCase, factor: int = 1) -> Rendered | Visits:
    """Render a patient's images for an edition, CT and PET or MR; in plane the matrix is `factor` times smaller."""
    if all(algorithm.modality == MR for algorithm in edition.algorithms):
        return render_visits(case, factor)
    return render_coarsened(case, factor)


def render_coarsened(case: PhantomCase, factor: int) -> Rendered:
    """Render a patient's images with a CT matrix that is `factor` times smaller in plane; 1 is the real size."""
    return render(replace(case, protocol=coarsen_protocol(case.protocol, factor)))


def make_patient(options: CohortOptions, case: PhantomCase, output: Path) -> str:
    """Render and write one patient; return the ID."""
    layout = _make_layout(options)
    if layout.on_one_grid and options.ct_coarsening == 1:
        case = replace(case, protocol=widen_ct_pixels(case.protocol))
    layout.write_case(output, case, render_for_edition(load_edition(options.edition), case, options.ct_coarsening))
    return case.patient_id


def make_cohort(options: CohortOptions, patients: int, output: Path, jobs: int) -> Iterator[str]:
    """Write a cohort and yield each patient's ID when its files are complete, existing patients first.

    Raises:
        OutputError: `output` contains a cohort that was made with other options.
    """
    layout = _make_layout(options)
    cases = draw_cases(options, patients)
    _check_marker(options, output)
    waiting = []
    for case in cases:
        if layout.is_complete(output, case):
            yield case.patient_id
        else:
            waiting.append(case)
    yield from _make_patients(options, waiting, output, jobs)
    layout.write_tables(output, cases)
    rows = [make_truth_row(case) for case in cases]
    write_csv(output / TRUTH_CSV, list(rows[0]), rows)


@dataclass(frozen=True)
class Phantom:
    """One synthetic patient.

    Attributes:
        patient_id: Centre and number, such as `MDA-004`.
        ct: int16 in HU, array in (z, y, x).
        pet: float32 in SUV on its own grid.
        mask: uint8 on the CT's grid: 0 background, 1 GTVp, 2 GTVn.
        planning: Planning CT, int16 in HU on its own grid; None without radiotherapy data.
        dose: Planned dose, float32 in Gy on its own grid; None without radiotherapy data.
        clinical: True clinical variables by name: `age_years`, `gender` (1 male), `tobacco`, `alcohol`,
            `performance_status`, `treatment` (1 chemoradiotherapy), `m_stage`.
        recorded: The same variables and `hpv_status` as the centre recorded them; None is missing.
        rfs_days: Observed days to recurrence, or to the end of follow-up.
        relapse: Whether a recurrence was observed.
        hpv_positive: HPV status.
        t_stage: T1 to T3 by size, T4 with invasion of the mandible, None without a primary tumour.
        n_stage: N0 to N3 by number, size and side of the nodes.
    """

    patient_id: str
    ct: Volume
    pet: Volume
    mask: Volume
    planning: Volume | None
    dose: Volume | None
    clinical: Mapping[str, int | str]
    recorded: Mapping[str, int | str | None]
    rfs_days: int
    relapse: bool
    hpv_positive: bool
    t_stage: str | None
    n_stage: str


def make_phantom(
    seed: int, index: int = 0, *, field_of_view: str | None = "head_and_neck", ct_coarsening: int = 1
) -> Phantom:
    """Draw and render one synthetic patient, the same as in a cohort of `hecktor phantoms` with this seed.

    On one core this takes 2 to 3 s for head and neck, and up to 6 s for a whole body.

    Args:
        seed: The cohort's seed, 0 or more.
        index: The patient's number in that cohort, 0 or more.
        field_of_view: "head_and_neck", "cut" (with little of the brain) or "whole_body"; None draws one at random.
        ct_coarsening: Factor by which the CT matrix (512 x 512) is smaller in plane, for quick tests.

    Raises:
        InputError: The field of view is unknown.
    """
    if field_of_view is not None and field_of_view not in FIELDS_OF_VIEW:
        raise InputError("field_of_view", f"found {field_of_view!r}", f"one of {', '.join(FIELDS_OF_VIEW)}")
    case = make_case(seed, index, CENTRES, field_of_view)
    rendered = render_coarsened(case, ct_coarsening)
    return Phantom(
        patient_id=case.patient_id,
        **vars(rendered),
        clinical=asdict(case.clinical),
        recorded=case.record,
        rfs_days=case.outcome.rfs_days,
        relapse=case.outcome.relapse,
        hpv_positive=case.outcome.hpv_positive,
        t_stage=t_stage(case.disease),
        n_stage=n_stage(case.disease),
    )


def _make_layout(options: CohortOptions) -> Layout:
    return LAYOUTS[options.layout](load_edition(options.edition))


def _make_patients(options: CohortOptions, cases: list[PhantomCase], output: Path, jobs: int) -> Iterator[str]:
    if jobs <= 1 or len(cases) <= 1:
        for case in cases:
            yield make_patient(options, case, output)
        return
    with closing(map_in_processes(partial(make_patient, options, output=output), cases, jobs)) as patients:
        for index, patient_id in patients:
            if isinstance(patient_id, WorkerDeath):
                problem = f"the process that made it ended ({patient_id.reason}: it crashed or ran out of memory)"
                raise OutputError(cases[index].patient_id, problem, "fewer processes at once: --jobs 1")
            yield patient_id


def _check_marker(options: CohortOptions, output: Path) -> None:
    """Write the options into a new cohort; raise `OutputError` if the folder has a cohort with other options."""
    marker = output / files.PHANTOM_MARKER
    expected = options.as_json()
    if marker.exists():
        actual = files.read_json(marker, error=OutputError)
        if actual != expected:
            raise OutputError(f"{output}", f"found a cohort made with {actual}", f"an empty folder or {expected}")
        return
    files.write_json(marker, expected)
