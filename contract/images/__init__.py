"""Image files and their geometry."""
