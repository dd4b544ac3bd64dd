"""Editions of the challenge, each one JSON document: inputs, clinical variables, algorithms, scoring."""

from contract.editions.algorithms import Algorithm
from contract.editions.answers import AnswerSpec
from contract.editions.clinical import ClinicalVariable
from contract.editions.edition import (
    DEFAULT_EDITION,
    Edition,
    compute_content_digest,
    list_editions,
    load_edition,
    parse_edition,
    remove_scoring,
    write_edition_file,
)
from contract.editions.inputs import Input, Socket

__all__ = [
    "DEFAULT_EDITION",
    "Algorithm",
    "AnswerSpec",
    "ClinicalVariable",
    "Edition",
    "Input",
    "Socket",
    "compute_content_digest",
    "list_editions",
    "load_edition",
    "parse_edition",
    "remove_scoring",
    "write_edition_file",
]
