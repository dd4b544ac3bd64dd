"""Results of evaluations and rankings: metrics.json and leaderboard.json."""
