"""Run an algorithm as a process or container, under the platform's limits."""
