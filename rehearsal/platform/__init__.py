"""The platform's checks: of an image at its upload, and of a run with its logs and outputs."""
