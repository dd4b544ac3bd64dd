"""Files in and out: atomic writing, strict JSON and CSV, archives, locks."""
