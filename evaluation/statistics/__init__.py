"""Bootstrap intervals and paired tests."""
