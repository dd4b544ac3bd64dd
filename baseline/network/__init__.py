"""Plan and train the networks with nnU-Net, and measure their out-of-fold masks."""
