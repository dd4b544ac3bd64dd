"""Make phantoms: a whole cohort on disk, in parallel and resumable, or one patient in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from contract.editions import Edition, load_edition
from contract.editions.inputs import MR
from contract.errors import InputError, OutputError
from contract.images.volumes import Volume
from contract.io import files
from contract.io.tables import write_csv
from contract.processes import WorkerDeath, map_in_processes
from rehearsal.phantoms.anatomy.surfaces import n_stage, t_stage
from rehearsal.phantoms.centres import CENTRES, FIELDS_OF_VIEW
from rehearsal.phantoms.cohort import CohortOptions, PhantomCase, draw_cases, make_case
from rehearsal.phantoms.layouts import LAYOUTS, Layout
from rehearsal.phantoms.protocol import coarsen_protocol, widen_ct_pixels
from rehearsal.phantoms.scanner import Rendered, render
from rehearsal.phantoms.tables import TRUTH_CSV, make_truth_row
from rehearsal.phantoms.visits import Visits, render_visits


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
        OutputError: `output` holds a cohort that was made with other options.
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
        patient_id: centre and number, such as `MDA-004`.
        ct: int16 in HU, array in (z, y, x).
        pet: float32 in SUV on its own grid.
        mask: uint8 on the CT's grid: 0 background, 1 GTVp, 2 GTVn.
        planning: planning CT, int16 in HU on its own grid; None without radiotherapy data.
        dose: planned dose, float32 in Gy on its own grid; None without radiotherapy data.
        clinical: true clinical variables by name: `age_years`, `gender` (1 male), `tobacco`, `alcohol`,
            `performance_status`, `treatment` (1 chemoradiotherapy), `m_stage`.
        recorded: the same variables and `hpv_status` as the centre recorded them; None is missing.
        rfs_days: observed days to recurrence, or to the end of follow-up.
        relapse: whether a recurrence was observed.
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

    It takes 2 to 3 s for a head and neck on one core, and up to 6 s for a whole body.

    Args:
        seed: the cohort's seed, 0 or more.
        index: the patient's number in that cohort, 0 or more.
        field_of_view: "head_and_neck", "cut" (with little of the brain) or "whole_body"; None draws it.
        ct_coarsening: for quick tests; the CT matrix (512 x 512) is smaller by this factor in plane.

    Raises:
        InputError: the field of view is unknown.
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
                problem = f"the process that made it ended ({patient_id.reason}: a crash, or killed for its memory)"
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
