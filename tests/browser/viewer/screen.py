"""Read the viewer's page: crosshair, pixels of the images, and when they are drawn."""

from __future__ import annotations

import io
import re

import numpy as np
from PIL import Image
from playwright.sync_api import Page, expect

from evaluation.page.html import TEAM_COLOURS

AXIAL, CORONAL, SAGITTAL = 0, 1, 2
REFERENCE_COLOUR = (0x3D, 0xFF, 0x6E)
ALPHA_COLOUR, BETA_COLOUR = (tuple(bytes.fromhex(colour[1:])) for colour in TEAM_COLOURS[:2])
OPEN_MS = 30_000


def wait_for_case(page: Page, case: str) -> None:
    expect(page.locator("#status")).to_contain_text("Opened in", timeout=OPEN_MS)
    expect(page.locator("#case-title b")).to_have_text(case)


def position(page: Page) -> list[float]:
    """The crosshair in mm (right, front, head), as the line below the images shows it."""
    text = page.locator("#readout").inner_text().replace("\N{MINUS SIGN}", "-")
    found = re.match(r"R (\S+)\s+A (\S+)\s+S (\S+) mm", text)
    assert found is not None, text
    return [float(part) for part in found.groups()]


def pixel_of(page: Page, plane: int, mm: list[float]) -> tuple[float, float]:
    """The pixel of the images at a position, in a plane."""
    x, y = page.evaluate("([plane, mm]) => window.viewer.view.toPixel(plane, mm)", [plane, mm])
    return float(x), float(y)


def stage(page: Page) -> np.ndarray:
    """The images as they are on the screen, of shape (height, width, 3)."""
    picture = page.locator("#stage").screenshot()
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)


def near(pixels: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """Where pixels have a colour, up to the smoothing of a line's edge."""
    return np.abs(pixels - np.array(colour)).max(axis=-1) <= 40


def has_colour(pixels: np.ndarray, pixel: tuple[float, float], colour: tuple[int, ...]) -> bool:
    x, y = (round(value) for value in pixel)
    return bool(near(pixels[y - 2 : y + 3, x - 2 : x + 3], colour).any())


def show_only(page: Page, name: str) -> None:
    page.get_by_role("button", name="None").click()
    page.locator("#masks").get_by_label(name).check()


def frame(page: Page) -> None:
    """Wait until what was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
