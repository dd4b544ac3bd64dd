"""From a cohort in the release's layout to a model package: prepare, train, fit heads, export."""
