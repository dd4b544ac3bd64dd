"""Synthetic anatomy: body, organs and lesions."""
