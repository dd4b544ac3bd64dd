"""Shared foundations: editions of the challenge, images and geometry, patients, predictions and errors."""
