"""Write the model package of a training: its networks, heads, fitted features and model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithm.heads.documents import Head
from algorithm.heads.feature_hook import folders_of
from algorithm.heads.head_hook import folders_of_code
from baseline.fit import check_heads
from baseline.heads.fitting import fallbacks_of, masks_of, read_heads, smallest_entry
from baseline.heads.record import read_cross_validation
from baseline.network.jobs import final_checkpoints
from baseline.network.plans import read_plan
from baseline.own_features import code_of_features, code_of_fits, load_fitted_hooks
from baseline.package.calibration import calibration_entry
from baseline.package.card import DEFAULTS, model_card
from baseline.package.existing import existing_networks, networks_record
from baseline.postprocessing.record import rules_in_use
from baseline.preparation import edition_of
from baseline.release.cases import read_cases
from baseline.release.splits import read_splits
from baseline.work import WorkFolders
from contract.code import Code
from contract.packages import make_edition_entries

if TYPE_CHECKING:  # imports torch
    from baseline.package.members import EnsembleMember


def export_model(
    work: WorkFolders, output: Path, description: Mapping[str, str] = DEFAULTS, code: Code | None = None
) -> Path:
    """Write the model package of networks and fitted heads, with its model card, to `output`, which is returned.

    `code` is for entrants' networks, which are tried before they are packed.

    Raises:
        HecktorError: a step has not been run, or the heads were fitted before another one changed their features.
    """
    check_heads(work)
    fitted, document = read_heads(work), read_cross_validation(work)
    cases, splits, edition = read_cases(work), read_splits(work), edition_of(work)
    existing = existing_networks(work)
    training = {
        "patients": len(cases),
        "centres": sorted({case.centre for case in cases}),
        "folds": len(splits.folds),
        "seed": splits.seed,
    }
    training |= {"heads_fitted_on": masks} if (masks := masks_of(fitted)) else {}
    training |= {"plan": read_plan(work).record()} if existing is None else {}
    out_of_fold = {
        name: {one.metric: round(one.out_of_fold, 4), "setting": dict(one.setting)} for name, one in fitted.items()
    }
    rules = rules_in_use(work)
    manifest = {
        **description,
        **make_edition_entries(edition),
        **({} if rules is None else {"postprocessing": rules}),
        "training": training,
        **({} if existing is None else {"networks_from": networks_record(existing)}),
        "fallbacks": fallbacks_of(edition, fitted),
        **calibration_entry(work),
        **smallest_entry(fitted),
        "out_of_fold": out_of_fold,
        "cross_validation": document.for_manifest(),
    }
    heads = {name: one.head for name, one in fitted.items()}
    if custom := {*folders_of(heads.values()), *folders_of_code(heads.values())}:
        digests = code_of_features(work) | code_of_fits(work) | document.code()
        manifest["code"] = {name: digest for name, digest in digests.items() if name in custom}
    return _export(work, output, heads, manifest, model_card(work, description), code)


def export_networks(work: WorkFolders) -> Path:
    """Write a package without heads, for the measurement; returns its folder."""
    description = {"name": "out-of-fold", "purpose": "measuring features in training"}
    description |= make_edition_entries(edition_of(work))
    return _export(work, work.root / "bare_package", {}, description, None)


def _export(
    work: WorkFolders,
    output: Path,
    heads: Mapping[str, Head],
    manifest: Mapping[str, Any],
    card: str | None,
    code: Code | None = None,
) -> Path:
    from baseline.package.export import PackageContents, export_contents  # torch takes seconds

    existing = existing_networks(work)
    if code:
        code.use(folders_of_code(heads.values()))
    features = load_fitted_hooks(work.heads_json.parent, heads.values(), code or Code({})) if heads else []
    if existing is not None:
        if code:
            code.use(existing.manifest.code)
        contents = PackageContents(existing, heads, manifest, card, features, code, work.custom_heads)
    else:
        members, entries = _trained(work)
        described = {**manifest, **entries}
        contents = PackageContents(members, heads, described, card, features, None, work.custom_heads)
    return export_contents(output, contents)


def _trained(work: WorkFolders) -> tuple[list[EnsembleMember], dict[str, Any]]:
    """The trained networks, fold 0 first as `ModelPackage.numbers_of` expects, and their entries of the manifest."""
    from baseline.network.checkpoint import read_checkpoint
    from baseline.package.members import EnsembleMember
    from baseline.package.nnunet_results import read_trained_plans

    plans, final = work.read(work.plans), final_checkpoints(work)
    members = [
        EnsembleMember(read_trained_plans(plans, name), name, map(read_checkpoint, paths))
        for name, paths in final.items()
    ]
    # The plan's, unless its trainer mirrors nothing.
    mirror_axes = read_checkpoint(next(iter(final.values()))[0]).mirror_axes
    # docs/formats.md compares the averages.
    channels = list(edition_of(work).algorithms[0].channels)
    return members, {"channels": channels, "mirror_axes": list(mirror_axes), "average": "probabilities"}
