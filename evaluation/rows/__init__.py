"""One row of sufficient statistics per case, for each kind of answer."""
