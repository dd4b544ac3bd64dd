"""Files in and out: atomic writing, strict JSON and CSV, tables, locks."""
