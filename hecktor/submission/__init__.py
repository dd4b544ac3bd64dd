"""The files to upload: each made, and rehearsed as the platform would run it, before it gets its name."""
