"""Parts of the trainer that a plan turns on: augmentation of the PET, starting weights, optimisers, organ labels."""
