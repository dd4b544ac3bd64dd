"""Published tables of earlier editions, from the printed values and the editions' own rules."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.editions.profile import load_profile
from evaluation.metrics.overlap import harmonic_mean_metric
from evaluation.ranking.rank import rank_teams
from tests.evaluation.tasks import RFS, SEGMENTATION

# HECKTOR 2021, Task 1, in the published order: DSC, HD95 (mm), precision, recall, F1. HD95 of the first four is
# printed as 3.0882 for all; the overview gives two of them as 3.0881603 and two as 3.0881618.
HECKTOR_2021 = """
Pengy 0.7785 3.0881603 0.8361 0.7751 0.8044
SJTU_EIEE 0.7733 3.0881603 0.8037 0.7972 0.8004
HiLab 0.7735 3.0881618 0.7877 0.8086 0.7980
BCIOQurit 0.7709 3.0881618 0.7974 0.8067 0.8020
Aarhus_Oslo 0.7790 3.1549 0.8032 0.8085 0.8058
Fuller_MDA 0.7702 3.1432 0.8037 0.7925 0.7981
UMCG 0.7621 3.1432 0.7881 0.7865 0.7873
Siat 0.7681 3.1549 0.8211 0.7707 0.7951
Heck_Uihak 0.7656 3.1549 0.7834 0.8036 0.7934
BMIT_USYD 0.7453 3.1549 0.7980 0.7537 0.7752
DeepX 0.7602 3.2700 0.7812 0.7996 0.7903
Emmanuelle_B 0.7595 3.2700 0.8746 0.7133 0.7858
C235 0.7565 3.2700 0.7774 0.7988 0.7880
Abdul_Qayyum 0.7487 3.2700 0.7972 0.7586 0.7774
RedNeucon 0.7400 3.2700 0.7624 0.7877 0.7748
DMLang 0.7046 4.0265 0.8195 0.6647 0.7340
Xuefeng 0.6851 4.1932 0.7394 0.7199 0.7295
Qurit_Tecvico 0.6771 5.4208 0.6788 0.7318 0.7043
Vokyj 0.6331 6.1267 0.7620 0.5935 0.6673
TECVICO 0.6357 6.3718 0.6355 0.7335 0.6810
"""
DISQUALIFIED_2021 = """
BAMF 0.7795 3.0571 0.8340 0.7706 0.8010
Wangjiao 0.7628 3.2700 0.7977 0.7855 0.7916
"""
# HECKTOR 2021, Task 2, in the published order: C-index.
HECKTOR_2021_TASK_2 = """
BioMedIA 0.7196
Fuller_MDA 0.6938
Qurit_Tecvico 0.6828
BMIT_USYD 0.6710
DMLang 0.6681
TECVICO_C 0.6608
BAMF 0.6602
ia-h-ai 0.6592
Neurophet 0.6495
UMCG 0.6445
Aarhus_Oslo 0.6391
RedNeucon 0.6280
Emmanuelle_B 0.6223
BCIOQurit 0.6116
Vokyj 0.5937
Xuefeng 0.5510
DeepX 0.5290
"""
# HECKTOR 2020 in the published order: DSC, precision, recall.
HECKTOR_2020 = """
andrei.iantsen 0.7591 0.8332 0.7400
junma 0.7525 0.8384 0.7471
badger 0.7355 0.8326 0.7023
deepX 0.7318 0.7851 0.7319
AIView_sjtu 0.7241 0.8479 0.6701
xuefeng 0.6911 0.7525 0.6928
QuritLab 0.6677 0.7290 0.7164
HFHSegTeam 0.6441 0.6938 0.7014
Fuller_MDA_Lab 0.6373 0.7546 0.6283
Maastro 0.5874 0.6560 0.6141
"""


def columns(text):
    lines = [line.split() for line in text.strip().splitlines()]
    return tuple(line[0] for line in lines), np.array([[float(cell) for cell in line[1:]] for line in lines]).T


def order_of(edition, task, names, values):
    profile = load_profile(edition).task(task.name)
    shuffled = np.random.default_rng(0).permutation(len(names))
    teams = [names[index] for index in shuffled]
    columns = {metric: column[shuffled] for metric, column in values.items()}
    board = rank_teams(teams, columns, profile.metrics, profile.ranking)
    return [teams[index] for index in board.order], board


def test_the_order_of_2021_is_borda_with_ties_by_hd95():
    names, (dsc, hd95, precision, recall, f1) = columns(HECKTOR_2021)
    metrics = ("gtvp_dsc_mean", "gtvp_hd95_median_mm", "gtvp_precision_mean", "gtvp_recall_mean", "gtvp_f1")
    values = dict(zip(metrics, (dsc, hd95, precision, recall, f1), strict=True))
    order, board = order_of("hecktor2021", SEGMENTATION, names, values)
    assert order == list(names)
    # Without the rule for ties the sum of ranks alone leaves teams level.
    assert np.unique(board.scheme_ranks["borda"].ranks).size < len(names)


def test_the_f1_column_of_2021_is_the_harmonic_mean_of_precision_and_recall():
    _, (_, _, precision, recall, f1) = columns(HECKTOR_2021 + DISQUALIFIED_2021.lstrip())
    for p, r, printed in zip(precision, recall, f1, strict=True):
        metric = harmonic_mean_metric(lambda weights, p=p: np.array([p]), lambda weights, r=r: np.array([r]))
        assert metric(np.ones((1, 1)))[0] == pytest.approx(printed, abs=1e-4)


def test_the_order_of_2020():
    names, (dsc, precision, recall) = columns(HECKTOR_2020)
    values = {"gtvp_dsc_mean": dsc, "gtvp_precision_mean": precision, "gtvp_recall_mean": recall}
    order, _ = order_of("hecktor2020", SEGMENTATION, names, values)
    assert order == list(names)


def test_ties_of_2020_go_to_the_higher_precision():
    values = {"gtvp_dsc_mean": np.array([0.7, 0.7, 0.6]), "gtvp_precision_mean": np.array([0.8, 0.9, 1.0])}
    assert order_of("hecktor2020", SEGMENTATION, ("a", "b", "c"), values)[0] == ["b", "a", "c"]


def test_the_mean_of_the_c_indices_of_2021_is_printed():
    """The 17 printed C-indices of Task 2; and their order is the edition's."""
    names, (c_index,) = columns(HECKTOR_2021_TASK_2)
    assert c_index.mean() == pytest.approx(0.6402, abs=5e-5)
    assert order_of("hecktor2021", RFS, names, {"c_index": c_index})[0] == list(names)


@pytest.mark.parametrize("edition", ["hecktor2022", "hntsmrg2024"])
def test_the_mean_of_aggregated_dsc_decides(edition):
    profile = load_profile(edition).task(SEGMENTATION.name)  # of 2024 an older name of the first task
    assert profile.ranking.schemes[profile.ranking.official] == "dsc_agg_mean"
