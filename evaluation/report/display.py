"""How scans are shown: windows and the reference's colour."""

from typing import Final

CT_WINDOW_HU: Final = (-160.0, 240.0)
PET_SHOWN_SUV: Final = (2.0, 14.0)
REFERENCE_COLOUR: Final = "#3dff6e"
