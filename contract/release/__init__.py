"""The layout of a release: folders, images and tables, and their problems."""
