"""Write model packages, from our own training or from finished nnU-Net results."""
