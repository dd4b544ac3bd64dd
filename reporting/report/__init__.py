"""One page that shows a cohort's results: tables, curves, and each patient's scans with all contours."""
