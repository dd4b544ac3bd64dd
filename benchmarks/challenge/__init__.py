"""A challenge of any size with simulated results: rows and metrics.json of each team, without images."""

from benchmarks.challenge.writing import ChallengeSize, write_challenge

__all__ = ["ChallengeSize", "write_challenge"]
