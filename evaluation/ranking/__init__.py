"""Rank teams, compare them and measure how stable the ranking is."""
