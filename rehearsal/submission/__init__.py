"""Make and rehearse the files to upload."""
