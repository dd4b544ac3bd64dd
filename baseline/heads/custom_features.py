"""An entrant's own features of the training patients, measured on stored masks; nothing is segmented again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from algorithm.heads.documents import Features
from algorithm.heads.feature_hook import FeatureHook
from algorithm.heads.measure import clinical_features
from baseline.cache import Sources, keys_of, map_items
from baseline.heads.cubes import images_of
from baseline.preparation import edition_of
from baseline.release.cases import ReleaseCase, image_paths
from baseline.work import WorkFolders
from contract.documents import Document, read_document
from contract.errors import HecktorError
from contract.files import write_json

# Increment when the same masks, images and code give other features.
_VERSION = 1


class CustomFeatureRow(Document):
    """One patient's own features, and the digest of the inputs that they were measured on."""

    key: str
    features: dict[str, float | None]


class CustomFeatureTable(Document):
    """The own features of a cohort, `custom_features.json`.

    Attributes:
        code: sha256 of each folder of code, by its name.
        rows: features by patient ID.
    """

    code: dict[str, str]
    rows: dict[str, CustomFeatureRow]


def measure_custom_features(
    work: WorkFolders, cases: Sequence[ReleaseCase], hooks: Sequence[FeatureHook], jobs: int = 1
) -> dict[str, Features]:
    """The features of the entrant's classes by patient ID; empty without one.

    They are measured on the masks that the heads are fitted on, after postprocessing. Patients with unchanged masks,
    images and code are not measured again. Without a class the stored features are removed.

    Raises:
        HecktorError: the entrant's code fails on a patient, or a feature is missing for every patient.
    """
    if not hooks:
        work.custom_features_json.unlink(missing_ok=True)
        return {}
    units = {name: unit for hook in hooks for name, unit in hook.units.items()}
    digests = {hook.name: hook.code.digest(hook.name) for hook in hooks}
    stored, keys = _stored(work), keys_of(work, {case.patient_id: _sources(work, case, digests) for case in cases})
    rows = {} if stored is None else {name: row for name, row in stored.rows.items() if keys.get(name) == row.key}
    waiting = [case for case in cases if case.patient_id not in rows]
    for name, features in map_items(partial(_measure, work=work, hooks=hooks), waiting, jobs, "measure own features"):
        rows[name] = CustomFeatureRow(key=keys[name], features=features)
    table = CustomFeatureTable(code=digests, rows={name: rows[name] for name in keys})
    for name in units:
        if all(row.features[name] is None for row in table.rows.values()):
            raise HecktorError(f"feature {name}", f"found missing for all {len(cases)} patients", "a value for some")
    if table != stored:
        write_json(work.custom_features_json, table.model_dump(mode="json"))
    return {name: row.features for name, row in table.rows.items()}


def custom_features_stamp(work: WorkFolders) -> dict[str, Any]:
    """The own features' part of the heads' key; empty if there are none."""
    table = _stored(work)
    return {} if table is None else {"custom_features": {name: row.key for name, row in table.rows.items()}}


def code_of_features(work: WorkFolders) -> dict[str, str]:
    """The sha256 of each folder of code that measured the stored own features, by its name."""
    table = _stored(work)
    return {} if table is None else table.code


def _stored(work: WorkFolders) -> CustomFeatureTable | None:
    path = work.custom_features_json
    return read_document(path, CustomFeatureTable) if path.is_file() else None


def _sources(work: WorkFolders, case: ReleaseCase, digests: Mapping[str, str]) -> Sources:
    clinical = clinical_features(case.patient, edition_of(work).clinical)
    made_from = {"version": _VERSION, "code": dict(digests), "clinical": clinical}
    return (*image_paths(work.raw, case), work.mask(case.patient_id), case.dose), made_from


def _measure(case: ReleaseCase, work: WorkFolders, hooks: Sequence[FeatureHook]) -> tuple[str, dict[str, float | None]]:
    images = images_of(case, work)
    try:
        return case.patient_id, {name: value for hook in hooks for name, value in hook.measured(images).items()}
    except HecktorError as problem:
        raise HecktorError(f"patient {case.patient_id}, {problem.what}", problem.found, problem.expected) from problem
