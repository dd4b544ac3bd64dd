"""Failure detection by predicted uncertainty."""
