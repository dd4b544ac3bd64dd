"""One declarative profile a file: what an edition of the challenge measures and how it ranks."""
