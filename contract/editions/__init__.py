"""Editions of the challenge, each declared as data: inputs, clinical variables, algorithms and their answers."""

from contract.editions.clinical import ClinicalVariable
from contract.editions.declaration import Algorithm, Answer, Socket
from contract.editions.edition import DEFAULT_EDITION, Edition, known_editions, load_edition

__all__ = [
    "DEFAULT_EDITION",
    "Algorithm",
    "Answer",
    "ClinicalVariable",
    "Edition",
    "Socket",
    "known_editions",
    "load_edition",
]
