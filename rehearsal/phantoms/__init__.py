"""Synthetic PET/CT head and neck patients: images, masks, clinical variables and outcomes.

All numbers are invented or rounded from published ranges; no patient data was used.
"""
