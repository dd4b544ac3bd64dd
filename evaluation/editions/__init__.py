"""How each edition of the challenge is evaluated: metrics, rules and ranking of its tasks."""
