"""What the challenge fixes: sockets, labels, geometry, patients, predictions and the errors that name them."""
