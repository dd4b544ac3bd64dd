"""Image files and image geometry."""
