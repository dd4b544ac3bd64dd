"""Tests that results which cannot be packaged are refused."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from baseline.package.existing import read_results
from contract.errors import ModelPackageError
from contract.io.files import write_json
from tests.baseline.package.nnunet_results import edit_checkpoint, edit_dataset, edit_plan, edit_training, package


def rename_configuration(configuration: str, **values: Any) -> Callable[[Path], None]:
    """Change both folds as if they had been trained by `configuration`, which is added to the plans."""

    def apply(results: Path) -> None:
        change = edit_training("plans.json", lambda p: p["configurations"].setdefault(configuration, {}).update(values))
        change(results)
        for fold in (0, 1):
            edit_checkpoint(lambda content: content["init_args"].update(configuration=configuration), fold)(results)

    return apply


def edit_architecture(**values: Any) -> Callable[[Path], None]:
    return edit_training("plans.json", lambda p: p["configurations"]["3d_fullres"]["architecture"].update(values))


def find_first_weight(content: Any) -> torch.Tensor:
    tensor: torch.Tensor = next(iter(content["network_weights"].values()))
    return tensor


class _Hostile:
    """Object whose pickle runs a command when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 1",)


def replace_member(name: str, content: bytes) -> Callable[[Path], None]:
    """Return a change that replaces one member of the first fold's checkpoint, with a valid checksum."""

    def apply(results: Path) -> None:
        path = results / "fold_0" / "checkpoint_final.pth"
        with zipfile.ZipFile(path) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in members.items():
                archive.writestr(member, content if member.endswith(f"/{name}") else data)

    return apply


def damage_weights(results: Path) -> None:
    """Change the last byte of the first tensor in the first fold's checkpoint."""
    path = results / "fold_0" / "checkpoint_final.pth"
    with zipfile.ZipFile(path) as archive:
        tensor = archive.read(next(name for name in archive.namelist() if name.endswith("/data/0")))
    data = bytearray(path.read_bytes())
    data[data.index(tensor) + len(tensor) - 1] ^= 1
    path.write_bytes(data)


def cut_off(results: Path) -> None:
    """Leave out the second half of the first fold's checkpoint."""
    path = results / "fold_0" / "checkpoint_final.pth"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no plans": (lambda r: (r / "plans.json").unlink(), r"no plans\.json, expected nnU-Net's results"),
    "no dataset": (lambda r: (r / "dataset.json").unlink(), r"^error: dataset\.json: not found"),
    "broken plans": (lambda r: (r / "plans.json").write_text("{"), r"plans\.json: not valid JSON"),
    "no folds": (lambda r: [shutil.rmtree(r / f"fold_{k}") for k in (0, 1)], "no fold_<number>"),
    "an unfinished fold": (
        lambda r: (r / "fold_1/checkpoint_final.pth").rename(r / "fold_1/checkpoint_latest.pth"),
        r"fold_1: found checkpoint_latest\.pth, expected checkpoint_final\.pth; --folds leaves out unfinished folds$",
    ),
    "two dimensions": (
        rename_configuration("2d"),
        r"2d has spacing \[6\.0, 4\.5\], expected a network of three dimensions",
    ),
    "a cascade": (
        rename_configuration("3d_cascade_fullres", inherits_from="3d_fullres", previous_stage="3d_lowres"),
        "3d_cascade_fullres is the second stage of a cascade after '3d_lowres', expected 3d_fullres, or 3d_lowres on",
    ),
    "a configuration that is not there": (
        edit_checkpoint(lambda c: c["init_args"].update(configuration="3d_huge")),
        r"plans\.json: not nnU-Net's plans for '3d_huge'",
    ),
    "plans without intensities": (
        edit_training("plans.json", lambda plans: plans.pop("foreground_intensity_properties_per_channel")),
        r"plans\.json: no 'foreground_intensity_properties_per_channel', expected nnU-Net's plans$",
    ),
    "no channels": (
        edit_dataset(channel_names={}),
        r"dataset\.json: channel_names \{\}, expected channels 0, 1, \.\.\. with all or some of CT, PET$",
    ),
    "one channel of another name": (
        edit_dataset(channel_names={"0": "MR"}),
        r"channels 0 'MR', expected names among CT, PET, or --channels NAME=0 with such names$",
    ),
    "a channel of another name": (
        edit_dataset(channel_names={"0": "noNorm", "1": "PET"}),
        r"channels 0 'noNorm', 1 'PET', expected names among CT, PET, or --channels NAME=0,NAME=1 with",
    ),
    "a label of another name": (
        edit_dataset(labels={"background": 0, "node": 1, "gtvp": 2, "ignore": 3}),
        r"labels 1 'node', 2 'gtvp', expected names among GTVp, GTVn, or --labels NAME=1,NAME=2 with",
    ),
    "one label": (
        edit_dataset(labels={"background": 0, "GTVp": 1}),
        r"dataset\.json: labels \{'background': 0, 'GTVp': 1\}, expected \{'background': 0, 'GTVp': 1, 'GTVn': 2\}",
    ),
    "regions": (
        edit_dataset(labels={"background": 0, "GTVp": [1, 2], "GTVn": 2}),
        r"labels .* with regions, expected plain labels",
    ),
    "an unknown network": (
        edit_architecture(network_class_name="a.b.SwinUNETR"),
        "network 'SwinUNETR', expected one of",
    ),
    "an unknown module": (
        edit_training(
            "plans.json",
            lambda p: p["configurations"]["3d_fullres"]["architecture"]["arch_kwargs"].update(nonlin="os.system"),
        ),
        r"plans\.json: module 'os\.system', expected one of",
    ),
    "an unknown normalisation": (
        edit_plan(normalization_schemes=["CTNormalization", "Mine"]),
        "normalisation 'Mine', expected .*CTNormalization",
    ),
    "normalised within a mask": (
        edit_plan(use_mask_for_norm=[False, True]),
        "use_mask_for_norm is true, expected false",
    ),
    "another preprocessor": (edit_plan(preprocessor_name="Mine"), "preprocessor 'Mine', expected DefaultPreprocessor"),
    "a reader that turns images": (
        edit_training("plans.json", lambda p: p.update(image_reader_writer="NibabelIOWithReorient")),
        "image_reader_writer 'NibabelIOWithReorient', expected SimpleITKIO or NibabelIO",
    ),
    "a patch that the network cannot take": (
        edit_training("plans.json", lambda p: p["configurations"]["3d_fullres"].update(patch_size=[8, 30, 32])),
        r"plans\.json: patch_size \[8, 30, 32\], expected multiples of \[\d+, \d+, \d+\] for this U-Net",
    ),
    "another order of axes": (
        edit_training("plans.json", lambda p: p.update(transpose_forward=[0, 0, 2])),
        r"transpose_forward \[0, 0, 2\], expected 0, 1 and 2",
    ),
    "only the best checkpoint": (
        lambda r: (r / "fold_1/checkpoint_final.pth").rename(r / "fold_1/checkpoint_best.pth"),
        r"fold_1: found checkpoint_best\.pth, expected checkpoint_final\.pth, or --checkpoint best; --folds leaves out",
    ),
    "a fold of other plans": (
        edit_checkpoint(lambda c: c["init_args"]["plans"]["configurations"]["3d_fullres"].update(spacing=[3, 6, 4]), 1),
        r"fold_1/checkpoint_final\.pth: trained with spacing \[3, 6, 4\], expected \[18\.0, 6\.0, 4\.5\] as in fold_0",
    ),
    "a fold of another data set": (
        edit_checkpoint(lambda c: c["init_args"]["dataset_json"].update(labels={"background": 0}), 1),
        r"fold_1/checkpoint_final\.pth: trained with labels \{\"background\": 0\}, expected \{.*\"GTVp\": 1.* as in fold_0",
    ),
    "plans without the trained configuration in a fold": (
        edit_checkpoint(lambda c: c["init_args"].update(plans={"configurations": {}}), 1),
        r"fold_1/checkpoint_final\.pth: not nnU-Net's plans for '3d_fullres'",
    ),
    "a fold of another training": (
        edit_checkpoint(lambda c: c.update(inference_allowed_mirroring_axes=None), fold=1),
        r"fold_1/checkpoint_final\.pth: mirror_axes \(\), expected \(0, 2\) as in fold_0",
    ),
    "a tensor too few": (
        edit_checkpoint(lambda c: c["network_weights"].popitem()),
        r"fold_0/checkpoint_final\.pth: decoder\..* is only in the network of plans\.json",
    ),
    "a tensor of another shape": (
        edit_checkpoint(lambda c: c["network_weights"].update({next(iter(c["network_weights"])): torch.zeros(7)})),
        r"fold_0/checkpoint_final\.pth: encoder\..* of shape \(7,\), expected",
    ),
    "a weight beyond float16": (
        edit_checkpoint(lambda c: find_first_weight(c).fill_(1e6)),
        r"fold_0/checkpoint_final\.pth: encoder\..* NaN, infinity or a number beyond float16",
    ),
    "no checkpoint": (
        lambda r: (r / "fold_0/checkpoint_final.pth").write_bytes(b"no checkpoint"),
        r"fold_0/checkpoint_final\.pth: not a torch file",
    ),
    "a pickle that torch cannot read": (
        replace_member("data.pkl", pickle.dumps(_Hostile())),
        r"^error: fold_0/checkpoint_final\.pth: damaged \(Unsupported operand 149\), expected a checkpoint as nnU-Net wrote it",
    ),
    "another byte order": (
        replace_member("byteorder", b"l"),
        r"^error: fold_0/checkpoint_final\.pth: damaged \(Unknown endianness type: l\)",
    ),
    "a member with another byte": (
        damage_weights,
        r"^error: fold_0/checkpoint_final\.pth: damaged \(.*/data/0 has a wrong checksum\)",
    ),
    "a checkpoint that is cut off": (
        cut_off,
        r"^error: fold_0/checkpoint_final\.pth: damaged \(cut off, or no index of its members\)",
    ),
    "a tensor without values": (
        edit_checkpoint(lambda c: c["network_weights"].update(extra=torch.zeros(1, device="meta"))),
        r"^error: fold_0/checkpoint_final\.pth: extra is not a plain tensor, expected dense weights by name",
    ),
    "something else in a checkpoint": (
        lambda r: torch.save({"state_dict": {}}, r / "fold_0/checkpoint_final.pth"),
        r"fold_0/checkpoint_final\.pth: no `network_weights`, expected a checkpoint of nnU-Net v2",
    ),
}


def test_a_fold_is_no_results_folder(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert package(results / "fold_0", tmp_path / "model") == 1
    message = "error: fold_0: no plans.json, expected nnU-Net's results, DatasetXXX_Name/Trainer__Plans__"
    assert capsys.readouterr().err.splitlines()[-1].startswith(message)


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_results_that_are_refused(case: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors are one line with the file, what was found and what was expected; nothing is written."""
    spoil, message = REFUSED[case]
    spoil(results)
    assert package(results, tmp_path / "out" / "model.tar.gz") == 1
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])
    assert not list((tmp_path / "out").rglob("*"))


def test_a_model_package_in_place_of_results(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert package(tiny_package, tmp_path / "model") == 1
    assert f"error: {tiny_package.name}: found a model package, expected nnU-Net's results" in capsys.readouterr().err


def test_a_missing_fold(tmp_path: Path) -> None:
    results = tmp_path / "Trainer__Plans__3d_fullres"
    for name in ("plans.json", "dataset.json"):
        write_json(results / name, {})
    for fold in (0, 1):
        (results / f"fold_{fold}").mkdir()
    with pytest.raises(ModelPackageError, match=r"^--folds: found 7"):
        read_results(results, ["1", "7"], "final")


def test_checkpoints_without_a_configuration(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Custom trainers may not record it: the folder's name gives it, and a note names what it does not record."""
    for fold in (0, 1):
        edit_checkpoint(lambda content: content.pop("init_args"), fold)(results)
    assert package(results, tmp_path / "model") == 0
    assert f"note: plans.json of Dataset001_Tiny-{results.name} is taken as it is: fold_0/" in capsys.readouterr().out
    assert package(results.rename(tmp_path / "trained"), tmp_path / "other") == 1
    message = "fold_0/checkpoint_final.pth: records no configuration, expected one, or a results folder named Trainer__"
    assert message in capsys.readouterr().err
