"""Whether deep features of the shipped network earn their place on phantoms that it never saw:
`.venv/bin/python -m benchmarks.encoder_study --patients 60 --output out/encoder_study.json`.

Fold 0's network segments and measures each phantom, some three seconds of one core; what was measured is kept beside
the output. The phantoms are none of those that the network was trained on, so no alignment of folds is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from algorithm.budget import Budget
from algorithm.case.notices import Notices
from algorithm.case.read import Case, clean_ct, clean_pet
from algorithm.encoder import FOLD, deep_features
from algorithm.heads.measure import Features, clinical_features, image_features
from algorithm.masks.segmentation import Segmentation
from algorithm.network.networks import Networks
from algorithm.network.package import DEFAULT_PACKAGE, load_package
from algorithm.network.passes import Passes
from algorithm.network.segment import network_channels, network_grid, normalise
from algorithm.network.windows import Pass
from algorithm.region.localise import localise
from baseline.cache import keep, read_kept
from baseline.heads.cross_validation import metric, nested
from baseline.heads.models.shared import Cohort, Outcomes
from baseline.heads.models.targets import TARGETS, Target, only
from benchmarks.phantom_features import TRAINING_CENTRES
from contract.errors import MetricError
from contract.files import write_json
from contract.patient import parse_ehr
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.protocol import coarsened
from rehearsal.phantoms.scanner import render

CPU: Final = torch.device("cpu")
# Of the CT's matrix; the network's voxels are wider still.
COARSER: Final = 4
NO_LIMIT_S: Final = 1e9


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, cross-validate the small models with and without the encoder, alone and in competition, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=60)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(argv)
    cases = [make_case(options.seed, index, TRAINING_CENTRES, "head") for index in range(options.patients)]
    networks = Networks(load_package(DEFAULT_PACKAGE))
    cohort = _cohort(cases, [_kept(case, networks, options.output.parent / "measured") for case in cases])
    document = {target.name: _judged(target, cohort, options.seed) for target in TARGETS}
    write_json(options.output, {"patients": options.patients, "seed": options.seed, **document})
    for name, found in document.items():
        print(name, found)  # noqa: T201
    return 0


def _judged(target: Target, cohort: Cohort, seed: int) -> dict[str, Any]:
    """The nested metric of each model alone, whatever the scarce outcome, and what the competition chose."""
    families = [replace(family, least_scarce=0) for family in target.families if "few" in family.name]
    found: dict[str, Any] = {"scarce": target.scarce(cohort)}
    for name, chosen in [(family.name, [family]) for family in families] + [("both", families)]:
        try:
            result = nested(only(target, chosen), cohort, np.random.default_rng(seed))
        except MetricError as problem:
            return found | {"why_not": problem.message}
        found[name] = metric(cohort, result)
    found["chosen"] = [fold.chosen.name for fold in result.folds]
    return found


def _cohort(cases: Sequence[PhantomCase], rows: Sequence[Features]) -> Cohort:
    told = [case.outcome for case in cases]
    return Cohort(
        tuple(case.patient_id for case in cases),
        tuple(case.centre.code for case in cases),
        tuple(rows),
        Outcomes(
            np.array([float(one.rfs_days) for one in told]),
            np.array([one.relapse for one in told]),
            np.array([one.hpv_positive for one in told]),
        ),
    )


def _kept(phantom: PhantomCase, networks: Networks, folder: Path) -> Features:
    path, key = folder / f"{phantom.patient_id}.json", str(phantom.noise_seed)
    row: Features | None = read_kept(path, key)
    if row is None:
        row = _measured(phantom, networks)
        keep(path, key, row)
    return row


def _measured(phantom: PhantomCase, networks: Networks) -> Features:
    rendered, notices = render(replace(phantom, protocol=coarsened(phantom.protocol, COARSER))), Notices(strict=False)
    patient, ct = parse_ehr(phantom.record, phantom.patient_id).patient, clean_ct(rendered.ct, "CT", notices)
    case = Case(ct, clean_pet(rendered.pet, ct, "PET", notices), patient)
    grid = network_grid(localise(case), networks.package.spacing_mm)
    shown_ct, shown_pet = network_channels(case, grid)
    data = normalise((shown_ct, shown_pet), networks.package)
    logits = Passes(data, (Pass(FOLD),), networks, Budget.start(NO_LIMIT_S), CPU).run().logits
    found = Segmentation(logits, shown_ct, shown_pet, grid)
    measured = image_features(found.mask(), shown_ct, shown_pet, grid)
    deep = deep_features(case, found, networks, Budget.start(NO_LIMIT_S), CPU)
    return {**measured, **deep, **clinical_features(patient)}


if __name__ == "__main__":
    raise SystemExit(main())
