"""Synthetic PET/CT head and neck patients: images, masks, clinical variables and outcomes.

Every number in here is invented or rounded from published ranges; no patient's data went into it.
"""
