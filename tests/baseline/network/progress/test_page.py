"""One page of all folds, which each fold writes whole."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from baseline.network.progress import page as training_page
from baseline.network.progress.curves import Curves, write_curves
from baseline.network.progress.page import page_of, write_page


def write_fold(
    folder: Path, network: str = "A__p__c", fold: int = 0, epochs: int = 45, done: int = 12, **changes: Any
) -> Path:
    """Write the files of a fold after `done` epochs of 20 s, the last at 100,000 s."""
    values: dict[str, Any] = {
        "network": network, "name": f"fold {fold}", "fold": fold, "epochs": epochs, "written": 100_000.0,
        "seconds": (20.0,) * done, "learning_rate": (1e-3,) * done, "training_loss": (-0.25,) * done,
        "validation_loss": (None,) * done, "dice": {"GTVp": (0.5,) * (done - 1) + (1.0,), "GTVn": (0.125,) * done},
    }  # fmt: skip
    path = folder / network / f"fold_{fold}"
    write_curves(path / "curves.json", Curves(**values | changes))
    (path / "curves.svg").write_text(f"<svg><title>{network} {fold}</title></svg>")
    return path


def test_numbers_of_a_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """33 epochs of 20 s are left, 11 minutes; the average of the GTVp is 0.9 x 0.5 + 0.1 x 1 = 0.55."""
    monkeypatch.setattr(training_page, "_clock", lambda seconds: f"at {seconds:.0f}")
    write_fold(tmp_path)
    page = page_of(tmp_path, 100_000.0)
    for text in (
        "12 of 45", "20.0 s", "at 100660, in 11 min 00 s", "1.00e\N{MINUS SIGN}03", "\N{MINUS SIGN}0.250",
        "1.000 (0.550)", "0.125 (0.125)", "<td>-</td>", "1 started, 0 finished", '<meta http-equiv="refresh"',
        "<svg><title>A__p__c 0</title></svg>",
    ):  # fmt: skip
        assert text in page
    assert "<script" not in page
    assert "<img" not in page


def test_states_of_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100,130 s a fold that wrote at 100,000 s has been silent for more than two minutes."""
    monkeypatch.setattr(training_page, "_clock", lambda seconds: f"at {seconds:.0f}")
    write_fold(tmp_path, fold=0, done=45)
    write_fold(tmp_path, fold=1)
    write_fold(tmp_path, fold=2, written=100_090.0)
    page = page_of(tmp_path, 100_130.0)
    assert "epoch 45 of 45, finished at 100000" in page
    assert "epoch 12 of 45, no news since at 100000" in page
    assert "epoch 12 of 45, at 100750, in 10 min 20 s" in page
    assert "3 started, 1 finished" in page


def test_folds_stand_in_order_below_their_networks(tmp_path: Path) -> None:
    for network, fold in (("T__p__3d_fullres_segresnet", 0), ("T__p__3d_fullres", 10), ("T__p__3d_fullres", 9)):
        write_fold(tmp_path, network, fold)
    (tmp_path / "T__p__3d_fullres" / "fold_9" / "validation.jpg").write_bytes(b"jpeg")
    page = page_of(tmp_path, 100_000.0)
    order = [page.index(f"<h2>{title}</h2>") for title in ("fold 9, unet", "fold 10, unet", "fold 0, segresnet")]
    assert order == sorted(order)
    assert page.count("data:image/jpeg;base64,anBlZw==") == page.count("<img") == 1


def test_a_damaged_fold_is_named_and_the_others_shown(tmp_path: Path) -> None:
    write_fold(tmp_path, fold=0, name="without <A&B>")
    (write_fold(tmp_path, fold=1) / "curves.json").write_text("{")
    page = page_of(tmp_path, 100_000.0)
    assert "<li>curves.json: not valid JSON" in page
    assert "<h2>without &lt;A&amp;B&gt;</h2>" in page
    assert "1 started" in page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"), (59.4, "59.4 s"), (59.6, "1 min 00 s"), (245, "4 min 05 s"), (3599.6, "1 h 00 min"),
        (12_000, "3 h 20 min"), (86_390, "1 d 00 h"), (183_600, "2 d 03 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert training_page._duration(seconds) == text


def test_a_fold_that_writes_meanwhile_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold 1 writes its curves after fold 0 has read all and before it writes: fold 0 reads again."""
    write_fold(tmp_path, fold=0)
    calls = []

    def slow(folder: Path, now: float) -> str:
        text = page_of(folder, now)
        if not calls:
            write_fold(tmp_path, fold=1)
        calls.append(now)
        return text

    monkeypatch.setattr(training_page, "page_of", slow)
    page = write_page(tmp_path, 100_000.0).read_text()
    assert len(calls) == 2
    assert "<h2>fold 1</h2>" in page


def test_a_page_that_fails_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fold(tmp_path)
    page = write_page(tmp_path, 100_000.0)
    before = page.read_text()
    monkeypatch.setattr(training_page, "page_of", lambda folder, now: "\ud800")
    with pytest.raises(UnicodeEncodeError):
        write_page(tmp_path, 100_000.0)
    assert page.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A__p__c", "index.html"]


def test_two_folds_at_once(tmp_path: Path) -> None:
    """A reader sees a whole page at any moment, and the last one has both folds' last epoch."""
    write_fold(tmp_path, fold=0, done=1)
    write_page(tmp_path, 100_000.0)
    pages: list[str] = []

    def train(fold: int) -> None:
        for done in range(1, 21):
            write_fold(tmp_path, fold=fold, done=done, epochs=20)
            write_page(tmp_path, 100_000.0)
            pages.append((tmp_path / "index.html").read_text())

    both = [threading.Thread(target=train, args=(fold,)) for fold in (0, 1)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(pages) == 40
    assert all(page.startswith("<!doctype html>") and page.endswith("</html>\n") for page in pages)
    assert "2 started, 2 finished" in (tmp_path / "index.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A__p__c", "index.html"]
