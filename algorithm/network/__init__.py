"""The network: model package, weights, passes in a time budget, and their segmentation."""
