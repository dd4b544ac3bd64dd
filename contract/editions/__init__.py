"""Editions of the challenge, each declared as data: inputs, clinical variables, algorithms and their answers."""

from contract.editions.clinical import ClinicalVariable
from contract.editions.declaration import Algorithm, Answer
from contract.editions.edition import Edition
from contract.editions.inputs import Input, Socket
from contract.editions.loading import (
    content_digest,
    declared_part,
    edition_from,
    known_editions,
    load_edition,
)
from contract.editions.whole import DEFAULT_EDITION

__all__ = [
    "DEFAULT_EDITION",
    "Algorithm",
    "Answer",
    "ClinicalVariable",
    "Edition",
    "Input",
    "Socket",
    "content_digest",
    "declared_part",
    "edition_from",
    "known_editions",
    "load_edition",
]
