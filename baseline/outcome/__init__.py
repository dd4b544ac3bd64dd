"""Train the outcome network over the folds of the training."""
