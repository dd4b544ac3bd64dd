"""The model package: plain data with a checksum for every file, no code.

A package is a folder::

    manifest.json          format, purpose, channels, labels, spacing, folds, heads, sha256 and size of every file
    plans.json             nnU-Net's plans
    fold_<k>.safetensors   one weights file for each fold, without optimiser state; the most valuable first
    networks/<k>/          instead of a weights file, the files of a custom network, in any format
    heads/<name>.json      coefficients, imputation, thresholds
    heads/<name>/<class>/  the files of a custom head, in any format
    features/<name>/fold_<k>/      optional: the files of fitted custom features, for each fold, in any format
    MODEL_CARD.md          optional, for readers: training data, licence, expected results, limits
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from algorithm.heads.documents import Head, read_head
from algorithm.heads.feature_hook import FOLDER, FeatureHook, find_hooks
from algorithm.heads.head_hook import bind_code
from algorithm.network.backbones import check_architecture
from contract.code import Code, find_installed_code
from contract.documents import is_integer, is_number
from contract.errors import ModelPackageError
from contract.io.files import read_json
from contract.packages import (
    CHANNEL_NUMBERS,
    HEADS_FOLDER,
    LABEL_NUMBERS,
    MANIFEST,
    Manifest,
    read_manifest,
    verify_files,
)
from contract.platform import is_added_by_system

PLANS: Final = "plans.json"
# Key of an `architecture` that names the class of a custom network, and the scheme of a custom normalisation function.
HOOK: Final = "hook"
CUSTOM_FUNCTION: Final = "Own"
CARD: Final = "MODEL_CARD.md"
# Mean, standard deviation and percentiles of each channel; an entry of a configuration replaces the entry of the plans.
INTENSITIES: Final = "foreground_intensity_properties_per_channel"
# nnU-Net's normalisations that inference can compute.
SCHEMES: Final = ("CTNormalization", "ZScoreNormalization", "NoNormalization", "RescaleTo01Normalization")
# The plans name a scheme or contain a window: two numbers, in HU or SUV, that are scaled to 0 and 1.
KNOWN: Final = f"a window (low, high) with low below high, one of {', '.join(SCHEMES)}"
# nnU-Net's resampling functions, and the keys of a configuration that name them.
RESAMPLING_FUNCTIONS: Final = ("resample_data_or_seg_to_shape", "resample_torch_fornnunet")
RESAMPLING_KEYS: Final = ("resampling_fn_data", "resampling_fn_probabilities")
# Key of nnU-Net's plans: for each axis of the network the axis of the image (z, y, x).
TRANSPOSE: Final = "transpose_forward"
_AXES: Final = (0, 1, 2)
_CONFIGURED: Final = ("spacing", "patch_size", "normalization_schemes", "architecture")
_OF_CT_NORMALISATION: Final = ("mean", "std", "percentile_00_5", "percentile_99_5")
# The text after "expected" for a package whose networks see different images.
ONE_IMAGE: Final = "one spacing and preprocessing for all networks of a package; train them alike, or pack only one"
# Channels of an image; each is an array in memory.
_MAX_CHANNELS: Final = 16


@dataclass(frozen=True)
class ModelPackage:
    """A verified package; weights are read fold by fold when they are needed.

    Its folds may belong to several members, which are networks of different configurations that see the same image.

    Attributes:
        root: Folder of the package.
        manifest: Content of `manifest.json`.
        plans: nnU-Net's plans.
        fold_files: Weights file of each fold; a folder for a custom network.
        heads: Heads by name.
        features: Hooks that measure custom features of the heads.
        code: User code that the package names.
    """

    root: Path
    manifest: Manifest
    plans: Mapping[str, Any]
    fold_files: tuple[Path, ...]
    heads: Mapping[str, Head]
    features: tuple[FeatureHook, ...] = ()
    code: Code = field(default_factory=lambda: Code({}))

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Return the configuration whose image all networks see; lesions and features are measured on its grid."""
        return self._get_configuration(self.manifest.configuration)

    def configuration_of(self, fold: int) -> Mapping[str, Any]:
        """Return the nnU-Net configuration of one fold's network."""
        return self._get_configuration(self.manifest.configurations[fold])

    def numbers_of(self, fold: int) -> list[int]:
        """Return the indices of the `fold_files` of a fold of the training (from 0), one for each configuration."""
        by_configuration: dict[str, list[int]] = {}
        for number, name in enumerate(self.manifest.configurations):
            by_configuration.setdefault(name, []).append(number)
        return [numbers[fold] for numbers in by_configuration.values()]

    def patch_of(self, fold: int) -> tuple[int, int, int]:
        """Return the patch size of one fold's network in voxels, along the network's own axes."""
        first, second, third = (int(n) for n in self.configuration_of(fold)["patch_size"])
        return (first, second, third)

    def axes_of(self, fold: int) -> tuple[int, int, int]:
        """Return, for each axis of one fold's network, the axis of the image (z, y, x)."""
        return read_axes(self.configuration_of(fold), self.plans)

    @property
    def channel_sources(self) -> tuple[int, ...]:
        """Return, for each channel of the image, its index among the manifest's channels, such as 0 for CT."""
        return tuple(self.configuration.get(CHANNEL_NUMBERS, range(len(self.manifest.channels))))

    def channel_order_of(self, fold: int) -> tuple[int, ...]:
        """Return, for each channel of one fold's network, the index of the channel of the image."""
        image, own = (
            _describe_channels(configuration, self.plans, self.manifest)
            for configuration in (self.configuration, self.configuration_of(fold))
        )
        if own == image:
            return tuple(range(len(own)))
        # Each channel of the image is taken once, since two channels may have the same description.
        unused, order = list(range(len(image))), []
        for channel in own:
            number = next(number for number in unused if image[number] == channel)
            unused.remove(number)
            order.append(number)
        return tuple(order)

    def label_order_of(self, fold: int) -> tuple[int, ...]:
        """Return, for background, GTVp and GTVn, the index of the output of one fold's network."""
        outputs = self.configuration_of(fold).get(LABEL_NUMBERS, range(len(self.manifest.labels)))
        return tuple(outputs.index(label) for label in range(len(self.manifest.labels)))

    def sees_only_pet(self, fold: int) -> bool:
        """Return whether this fold's network uses only the PET."""
        images = {self.manifest.channels[number] for number in self.channel_sources}
        return images == {"PET"} or self.configuration_of(fold)["architecture"].get("sees") == "PET"

    def uses_half_precision(self, fold: int) -> bool:
        """Return whether this fold's network may compute in half precision; a custom network declares this itself."""
        return bool(self.configuration_of(fold)["architecture"].get("half_precision", True))

    @property
    def intensities(self) -> Mapping[str, Any]:
        """Return the foreground intensities of each channel, by which nnU-Net's schemes normalise the image."""
        intensities: Mapping[str, Any] = self.configuration.get(INTENSITIES, self.plans[INTENSITIES])
        return intensities

    def _get_configuration(self, name: str) -> Mapping[str, Any]:
        configuration: Mapping[str, Any] = self.plans["configurations"][name]
        return configuration

    @property
    def spacing_mm(self) -> tuple[float, float, float]:
        """Return the voxel spacing of the networks' grid in (x, y, z)."""
        z, y, x = _untranspose(self.configuration["spacing"], read_axes(self.configuration, self.plans))
        return (x, y, z)

    def head(self, name: str) -> Head:
        """Return the head called `name`. Raises `ModelPackageError` for a head that does not exist."""
        if not self.heads:
            raise ModelPackageError(MANIFEST, f"no head {name!r}", "a package with heads: this package only segments")
        if name not in self.heads:
            raise ModelPackageError(MANIFEST, f"no head {name!r}", f"one of {', '.join(self.heads)}")
        return self.heads[name]


def is_known(scheme: Any) -> bool:
    """Return whether a normalisation scheme is a window, one of `SCHEMES` or a custom function."""
    if isinstance(scheme, str):
        return scheme in (*SCHEMES, CUSTOM_FUNCTION)
    try:
        low, high = (np.float32(limit) for limit in scheme)
    except (TypeError, ValueError):
        return False
    return bool(-np.inf < low < high < np.inf)


def is_custom(configuration: Mapping[str, Any]) -> bool:
    """Return whether a configuration belongs to a custom network."""
    return HOOK in configuration["architecture"]


def load_package(root: Path, code: Code | None = None) -> ModelPackage:
    """Read and verify a package; `code` is the user code that it names, and None uses the code in the image.

    Raises:
        ModelPackageError: The folder is not a model package, or the package is damaged.
    """
    manifest = read_manifest(root)
    files = verify_files(root, manifest)
    plans = _read_plans(files, manifest)
    if manifest.resampling == "nnunet":
        _check_resampling(plans["configurations"][manifest.configuration])
    _check_one_image(plans, manifest)
    folds = tuple(
        _find_fold(root, files, plans, *names) for names in zip(manifest.folds, manifest.configurations, strict=True)
    )
    actual = find_installed_code() if code is None else code
    heads = {
        Path(name).stem: bind_code(
            read_head(read_json(path, error=ModelPackageError), name), actual, root / HEADS_FOLDER
        )
        for name, path in files.items()
        if Path(name).parent == Path(HEADS_FOLDER)
    }
    return ModelPackage(
        root, manifest, plans, folds, heads, _load_feature_hooks(root, manifest, files, heads, actual), actual
    )


def _load_feature_hooks(
    root: Path, manifest: Manifest, files: Mapping[str, Path], heads: Mapping[str, Head], code: Code
) -> tuple[FeatureHook, ...]:
    """Return the hooks that measure custom features of the heads, after a check that the manifest lists their files."""
    hooks = find_hooks(root, heads.values(), code)
    for path in (root / FOLDER).rglob("*"):
        if path.is_file() and not is_added_by_system(path.name):
            _find_listed(files, path.relative_to(root).as_posix())
    for hook in hooks:
        if hook.name not in manifest.code:
            expected = f"code {hook.name}, which measures features of its heads"
            raise ModelPackageError(MANIFEST, f"found code {', '.join(manifest.code) or 'none'}", expected)
    return hooks


def _find_fold(root: Path, files: Mapping[str, Path], plans: Mapping[str, Any], name: str, configuration: str) -> Path:
    """Return the weights file of a fold, or the folder of a custom network."""
    if not is_custom(plans["configurations"][configuration]):
        return _find_listed(files, name)
    if not any(listed.startswith(f"{name}/") for listed in files):
        raise ModelPackageError(MANIFEST, f"lists no file of {name}", "entries with size and sha256")
    return root / name


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path, error=ModelPackageError)
    if not isinstance(content, dict):
        raise ModelPackageError(path.name, f"found a {type(content).__name__}", "an object")
    return content


def _check_keys(content: Mapping[str, Any], keys: Sequence[str], name: str, expected: str) -> None:
    absent = [key for key in keys if key not in content]
    if absent:
        raise ModelPackageError(name, f"no {absent[0]!r}", expected)


def _read_plans(files: Mapping[str, Path], manifest: Manifest) -> dict[str, Any]:
    """Read the plans, and check the configurations that the manifest names."""
    plans = _read_object(_find_listed(files, PLANS))
    _check_keys(plans, (INTENSITIES,), PLANS, "nnU-Net's plans")
    for name in dict.fromkeys((manifest.configuration, *manifest.configurations)):
        _check_configuration(plans, name, manifest)
        read_axes(plans["configurations"][name], plans)
    return plans


def read_axes(configuration: Mapping[str, Any], plans: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return, for each axis of a configuration's network, the axis of the image (z, y, x).

    nnU-Net puts the axis of the largest spacing first. Plans merged from several trainings name the axes in each
    configuration.

    Raises:
        ModelPackageError: The axes are not 0, 1 and 2 in some order.
    """
    axes = configuration.get(TRANSPOSE, plans.get(TRANSPOSE, _AXES))
    if not isinstance(axes, Sequence) or sorted(map(str, axes)) != ["0", "1", "2"]:
        raise ModelPackageError(PLANS, f"{TRANSPOSE} {axes!r}", "0, 1 and 2 in some order")
    first, second, third = (int(axis) for axis in axes)
    return (first, second, third)


def _untranspose(values: Sequence[float], axes: tuple[int, int, int]) -> tuple[float, float, float]:
    """Reorder values along the network's axes to values along (z, y, x)."""
    z, y, x = (float(values[axes.index(axis)]) for axis in _AXES)
    return (z, y, x)


def _check_resampling(configuration: Mapping[str, Any]) -> None:
    """Check that a configuration resamples by nnU-Net's own functions."""
    for key in RESAMPLING_KEYS:
        if (function := configuration.get(key)) not in RESAMPLING_FUNCTIONS:
            raise ModelPackageError(PLANS, f"{key} {function!r}", " or ".join(RESAMPLING_FUNCTIONS))
        if not isinstance(options := configuration.get(f"{key}_kwargs", {}), dict):
            raise ModelPackageError(PLANS, f"{key}_kwargs {options!r}", "an object of options")


def _check_one_image(plans: Mapping[str, Any], manifest: Manifest) -> None:
    """Check that all networks see the same image: the same grid and channels, normalised and resampled alike."""
    wanted = _describe_image(plans, manifest.configuration, manifest)
    for name in manifest.configurations:
        for key, value in _describe_image(plans, name, manifest).items():
            if wanted.get(key, value) != value:
                actual = f"{name} has {key} {value!r}, {manifest.configuration} {wanted[key]!r}"
                raise ModelPackageError(PLANS, actual, ONE_IMAGE)


def _describe_image(plans: Mapping[str, Any], name: str, manifest: Manifest) -> dict[str, Any]:
    """Return the entries that determine the image of a configuration, independently of the order of its channels.

    A custom network declares no resampling.
    """
    configuration = plans["configurations"][name]
    channels = sorted(_describe_channels(configuration, plans, manifest), key=repr)
    seen = {
        "spacing": list(_untranspose(configuration["spacing"], read_axes(configuration, plans))),
        CHANNEL_NUMBERS: [source for source, _, _ in channels],
        "normalization_schemes": [scheme for _, scheme, _ in channels],
        INTENSITIES: [intensities for _, _, intensities in channels if intensities],
    }
    if CUSTOM_FUNCTION in configuration["normalization_schemes"]:
        seen["function of"] = configuration["architecture"].get(HOOK)
    if manifest.resampling == "nnunet" and not is_custom(configuration):
        seen |= {
            key: configuration.get(key) for function in RESAMPLING_KEYS for key in (function, f"{function}_kwargs")
        }
    return seen


def _describe_channels(
    configuration: Mapping[str, Any], plans: Mapping[str, Any], manifest: Manifest
) -> list[tuple[int, Any, dict[str, Any]]]:
    """Describe each channel of a network: its index among the manifest's channels, its scheme and its intensities."""
    sources = configuration.get(CHANNEL_NUMBERS, range(len(manifest.channels)))
    intensities = configuration.get(INTENSITIES, plans[INTENSITIES])
    return [
        (source, scheme, {key: intensities[str(number)][key] for key in _OF_CT_NORMALISATION})
        if scheme == "CTNormalization"
        else (source, scheme, {})
        for number, (source, scheme) in enumerate(zip(sources, configuration["normalization_schemes"], strict=True))
    ]


def _check_configuration(plans: Mapping[str, Any], name: str, manifest: Manifest) -> None:
    configurations = plans.get("configurations")
    chosen = configurations.get(name) if isinstance(configurations, dict) else None
    if not isinstance(chosen, dict):
        raise ModelPackageError(PLANS, f"no configuration {name!r}, which the manifest names")
    _check_keys(chosen, _CONFIGURED, PLANS, "nnU-Net's plans")
    check_architecture(chosen)
    if is_custom(chosen):
        _check_keys(chosen["architecture"], ("labels", "returns", "half_precision"), PLANS, "a custom network")
    for key, whole in (("spacing", ""), ("patch_size", ", whole ones")):
        numbers = chosen[key]
        fits = isinstance(numbers, list) and len(numbers) == 3 and all(map(_is_positive, numbers))
        if not fits or (whole and any(int(number) != number for number in numbers)):
            raise ModelPackageError(PLANS, f"{key} {numbers!r:.80}", f"three positive numbers{whole}")
    _check_normalisation(chosen, manifest.channels, chosen.get(INTENSITIES, plans[INTENSITIES]))
    _check_labels(chosen, len(manifest.labels))


def _check_normalisation(configuration: Mapping[str, Any], channels: Sequence[str], intensities: Any) -> None:
    """Check that each of the network's channels has a normalisation that inference can compute."""
    schemes, sources = configuration["normalization_schemes"], _read_channel_numbers(configuration, channels)
    if not isinstance(schemes, list) or len(schemes) != len(sources):
        actual = f"{len(schemes)} channels" if isinstance(schemes, list) else f"normalization_schemes {schemes!r:.80}"
        raise ModelPackageError(PLANS, actual, f"{len(sources)} ({' and '.join(channels)})")
    for number, scheme in enumerate(schemes):
        if not is_known(scheme):
            raise ModelPackageError(PLANS, f"normalisation {scheme!r}", KNOWN)
        if scheme == "CTNormalization":
            of_channel = intensities.get(str(number), {}) if isinstance(intensities, dict) else {}
            for key in _OF_CT_NORMALISATION:
                if not is_number(of_channel.get(key)):
                    raise ModelPackageError(PLANS, f"found no number {key!r} for channel {number}", INTENSITIES)


def _check_labels(configuration: Mapping[str, Any], count: int) -> None:
    """Check that each output of the network is one of the manifest's labels."""
    outputs = configuration.get(LABEL_NUMBERS, list(range(count)))
    fits = isinstance(outputs, list) and all(map(is_integer, outputs)) and sorted(outputs) == list(range(count))
    if not fits:
        raise ModelPackageError(PLANS, f"labels {outputs!r:.80}", f"the numbers 0 to {count - 1} in some order")


def _read_channel_numbers(configuration: Mapping[str, Any], channels: Sequence[str]) -> Sequence[int]:
    """Return, for each channel of the network, its index among the manifest's `channels`."""
    numbers: Any = configuration.get(CHANNEL_NUMBERS, list(range(len(channels))))
    fits = (
        isinstance(numbers, list)
        and 0 < len(numbers) <= _MAX_CHANNELS
        and all(is_integer(number) and 0 <= number < len(channels) for number in numbers)
    )
    if not fits:
        expected = f"numbers from 0 ({channels[0]}) to {len(channels) - 1} ({channels[-1]}), at most {_MAX_CHANNELS}"
        raise ModelPackageError(PLANS, f"channels {numbers!r:.80}", expected)
    return tuple(numbers)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < 1e6


def _find_listed(files: Mapping[str, Path], name: str) -> Path:
    if name not in files:
        raise ModelPackageError(MANIFEST, f"does not list {name}", "an entry with size and sha256")
    return files[name]
