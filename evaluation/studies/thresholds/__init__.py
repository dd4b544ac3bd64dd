"""PET threshold baselines."""
