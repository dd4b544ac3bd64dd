"""Evaluation profiles: metrics, rules and ranking of each edition of the challenge."""
