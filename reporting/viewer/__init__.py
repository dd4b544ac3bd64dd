"""Viewer of cases in the browser: CT, PET and masks, from a local server or as one file."""
