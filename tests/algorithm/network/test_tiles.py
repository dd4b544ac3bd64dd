"""Tiles of a pass, and the backends of a device."""

from __future__ import annotations

import torch

from algorithm.network.tiles import Backend, list_backends, list_tiles

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
GIB = 2**30


def test_tiles_overlap_by_half_and_cover_a_grid_smaller_than_the_patch() -> None:
    """Along 40 voxels tiles of 16 begin at 0, 8, 16 and 24; along 24 at 0 and 8; along 10 at 0 of the padded grid."""
    tiles = list_tiles((40, 24, 10), (16, 16, 16))
    assert [tile[0].start for tile in tiles[::2]] == [0, 8, 16, 24]
    assert [tile[1].start for tile in tiles[:2]] == [0, 8]
    assert {(tile[2].start, tile[2].stop) for tile in tiles} == {(0, 16)}


def test_sums_move_to_ram_before_the_card_is_full() -> None:
    """Up to 4 GiB of sums stay on the card; after the card comes the card with sums in RAM, then the CPU."""
    assert list_backends(CPU, 100 * GIB) == (Backend(CPU, CPU),)
    assert list_backends(CUDA, 4 * GIB) == (Backend(CUDA, CUDA), Backend(CUDA, CPU), Backend(CPU, CPU))
    assert list_backends(CUDA, 4 * GIB + 1) == (Backend(CUDA, CPU), Backend(CUDA, CPU), Backend(CPU, CPU))
