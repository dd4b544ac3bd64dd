"""Outcome network: answers from the images around the tumour, as features of the heads."""
