"""Python interface of the algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from algorithm.case.inputs import make_case_files
from algorithm.case.read import CaseSource, CaseVolumes
from algorithm.network.loaded_package import LoadedPackage, find_shipped_package, find_uploaded_package
from algorithm.pipeline import predict
from algorithm.prediction import Prediction
from algorithm.request import PredictRequest, find_method
from contract.editions import Algorithm
from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.packages import PackageIdentity, chosen_edition


class Predictor:
    """Answers cases with one model package, loaded once. It raises the errors of `hecktor predict`."""

    def __init__(
        self,
        package: Path | str | None = None,
        edition: str | None = None,
        task: str | None = None,
        device: str = "auto",
        *,
        passes: int | None = None,
        time_limit_s: float | None = None,
        code: Sequence[Path | str] = (),
        whole_scan: bool = False,
    ) -> None:
        """Load the package and its network.

        Args:
            package: Folder of the model package; None takes /opt/ml/model if it holds one, else the edition's shipped
                package.
            edition: Name of an edition, or path of its JSON file; None takes the edition of the package, HECKTOR 2025
                without one.
            task: Task of the edition by name or number; None for the first one.
            device: "auto", "cpu" or "cuda".
            passes: Largest number of passes of the network for each case; None makes all, or those that fit the time.
            time_limit_s: Seconds for each case; None sets no limit.
            code: Folders of user code that the package names, such as `my_model`.
            whole_scan: Whether lesions are searched in the whole scan, as nnU-Net does, not only in head and neck.

        Raises:
            HecktorError: Edition, task, package or device is unknown or unusable.
        """
        self.edition = chosen_edition(edition, None if package is None else Path(package))
        self.algorithm = self.edition.algorithms[0] if task is None else self.edition.find_algorithm(task)
        folder = find_uploaded_package() if package is None else Path(package)
        self._request = PredictRequest(
            edition=self.edition,
            algorithm=self.algorithm,
            method=find_method("baseline", self.edition, self.algorithm),
            source=Path(),
            output_dir=None,
            device=device,
            time_limit_s=time_limit_s,
            max_passes=passes,
            is_shipped=folder is None,
            code=tuple(map(Path, code)),
            whole_scan=whole_scan,
        )
        self._loaded = LoadedPackage(folder or find_shipped_package(self.edition.name), device, self._request.code)
        self._loaded.check(self.edition, self.algorithm)
        self._loaded.load()

    @property
    def identity(self) -> PackageIdentity:
        """Name and checksum of the package."""
        return self._loaded.identity

    def predict(self, folder: Path | str) -> Prediction:
        """Answer the case in a folder of the platform's `/input` layout; writes no file. Raises `HecktorError`."""
        return self._predict(Path(folder))

    def predict_files(
        self,
        ct: Path | str,
        pet: Path | str | None = None,
        ehr: Path | str | None = None,
        *,
        probabilities_dir: Path | None = None,
    ) -> Prediction:
        """Answer a case in plain images, as `hecktor predict --ct --pet --ehr`; writes no other file.

        Args:
            ct: HU, in any format of `--ct`.
            pet: SUV; None takes CASE_0001 beside a CT with nnU-Net's name CASE_0000.
            ehr: Clinical variables, JSON; None answers only the mask.

        Raises:
            HecktorError: A file is absent or unusable, or the task has no mask and `ehr` is None.
        """
        files = make_case_files(Path(ct), None if pet is None else Path(pet), None if ehr is None else Path(ehr))
        algorithm = self.algorithm if ehr is not None else self._mask_alone()
        return self._predict(files, algorithm, probabilities_dir)

    def predict_arrays(
        self,
        ct: npt.NDArray[Any],
        ct_geometry: Geometry,
        pet: npt.NDArray[Any],
        pet_geometry: Geometry,
        ehr: Mapping[str, Any] | None = None,
    ) -> Prediction:
        """Answer a case in memory.

        Args:
            ct: HU in (z, y, x).
            ct_geometry: The CT's grid, LPS in mm.
            pet: SUV in (z, y, x), on a grid of its own.
            pet_geometry: The PET's grid, LPS in mm.
            ehr: Clinical variables with the keys of `ehr.json`; absent ones count as missing.

        Raises:
            HecktorError: An array does not fit its geometry, or the case cannot be answered.
        """
        return self._predict(CaseVolumes(_volume("CT", ct, ct_geometry), _volume("PET", pet, pet_geometry), ehr or {}))

    def _predict(
        self, source: CaseSource, algorithm: Algorithm | None = None, probabilities_dir: Path | None = None
    ) -> Prediction:
        request = replace(
            self._request,
            source=source,
            algorithm=algorithm or self.algorithm,
            probabilities_dir=probabilities_dir,
        )
        return predict(request, self._loaded)

    def _mask_alone(self) -> Algorithm:
        if self.algorithm.mask_spec is None:
            raise InputError("ehr", "not given", f"the clinical variables for {self.algorithm.name}")
        return self.algorithm.model_copy(update={"answers": (self.algorithm.mask_spec,)})


def _volume(name: str, array: npt.NDArray[Any], geometry: Geometry) -> Volume:
    if array.shape != geometry.array_shape:
        expected = f"{geometry.array_shape} (z, y, x) as in its geometry"
        raise InputError(name, f"an array of shape {array.shape}", expected)
    return Volume(array, geometry)
