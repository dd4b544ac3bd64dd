"""The page that shows a training while it runs: curves, pictures and figures."""
