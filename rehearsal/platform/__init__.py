"""The platform's checks: of an image at its upload, of a run, and of the outputs of a job."""
