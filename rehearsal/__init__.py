"""Rehearsal: phantom cohorts and a look-alike of the platform."""
