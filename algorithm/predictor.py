"""The Python interface of the algorithm."""

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
    """Answers cases with one model package, which is loaded once, and raises the same errors as `hecktor predict`."""

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
            package: Folder of the model package; None takes the package in /opt/ml/model if there is one, otherwise the
                package that is shipped for the edition.
            edition: Name of an edition, or path of its JSON file; None takes the edition of `package`, or HECKTOR 2025
                without `package`.
            task: Name or number of a task of the edition; None takes the first task.
            device: "auto", "cpu" or "cuda".
            passes: Maximum number of passes of the network for each case; None makes all, or those that fit the time.
            time_limit_s: Seconds for each case; None sets no limit.
            code: Folders of user code that the package names, such as `my_model`.
            whole_scan: Whether lesions are searched in the whole scan, as nnU-Net does, not only in head and neck.

        Raises:
            HecktorError: The edition, task, package or device is unknown or cannot be used.
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
        """Return the name and the checksum of the package."""
        return self._loaded.identity

    def predict(self, folder: Path | str) -> Prediction:
        """Answer the case in a folder of the platform's `/input` layout, without writing a file.

        Raises:
            HecktorError: The case cannot be read or answered.
        """
        return self._predict(Path(folder))

    def predict_files(
        self,
        ct: Path | str,
        pet: Path | str | None = None,
        ehr: Path | str | None = None,
        *,
        probabilities_dir: Path | None = None,
    ) -> Prediction:
        """Answer a case in plain images, as `hecktor predict --ct --pet --ehr` does, but without writing its answers.

        Args:
            ct: Image of the CT in HU, in any format of `--ct`.
            pet: Image of the PET in SUV; None takes CASE_0001 next to a CT with nnU-Net's name CASE_0000.
            ehr: JSON file of the clinical variables; with None only the mask is answered.
            probabilities_dir: Folder to which the probabilities of GTVp and GTVn are written; None writes none.

        Raises:
            HecktorError: A file is absent or cannot be used, or the task has no mask and `ehr` is None.
        """
        files = make_case_files(Path(ct), None if pet is None else Path(pet), None if ehr is None else Path(ehr))
        algorithm = self.algorithm if ehr is not None else self._select_only_mask()
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
            pet: SUV in (z, y, x), on its own grid.
            pet_geometry: The PET's grid, LPS in mm.
            ehr: Clinical variables with the keys of `ehr.json`; an absent key is a missing value. None is the same as
                no keys.

        Raises:
            HecktorError: An array does not fit its geometry, or the case cannot be answered.
        """
        return self._predict(
            CaseVolumes(_make_volume("CT", ct, ct_geometry), _make_volume("PET", pet, pet_geometry), ehr or {})
        )

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

    def _select_only_mask(self) -> Algorithm:
        if self.algorithm.mask_spec is None:
            raise InputError("ehr", "not given", f"the clinical variables for {self.algorithm.name}")
        return self.algorithm.model_copy(update={"answers": (self.algorithm.mask_spec,)})


def _make_volume(name: str, array: npt.NDArray[Any], geometry: Geometry) -> Volume:
    if array.shape != geometry.array_shape:
        expected = f"{geometry.array_shape} (z, y, x) as in its geometry"
        raise InputError(name, f"an array of shape {array.shape}", expected)
    return Volume(array, geometry)
