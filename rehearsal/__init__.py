"""Rehearsal: phantom cohorts, and a look-alike of the platform that runs images under its rules."""

from rehearsal.phantoms.make import Phantom, make_phantom

__all__ = ["Phantom", "make_phantom"]
