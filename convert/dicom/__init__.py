"""DICOM objects as volumes: series, slices, values, SUV, structures and dose."""
