"""Find the head and neck in the scan, and resample between grids."""
