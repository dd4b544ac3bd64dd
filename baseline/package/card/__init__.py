"""The model card of a package."""
