"""Editions of the challenge, each one JSON document: inputs, clinical variables, algorithms, scoring."""

from contract.editions.answers import Answer
from contract.editions.clinical import ClinicalVariable
from contract.editions.declaration import Algorithm
from contract.editions.edition import (
    DEFAULT_EDITION,
    Edition,
    content_digest,
    declared_part,
    edition_from,
    in_a_file,
    known_editions,
    load_edition,
)
from contract.editions.inputs import Input, Socket

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
    "in_a_file",
    "known_editions",
    "load_edition",
]
