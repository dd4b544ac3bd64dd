"""Evaluation of each edition of the challenge: metrics, rules and ranking of its tasks."""
