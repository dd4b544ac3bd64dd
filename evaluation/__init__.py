"""Score submissions of the challenge against the ground truth, and rank teams; loads no network."""
