"""The map as a small PNG, for clients without scripts. Pure."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.pipeline.map_layout import SIDE
from anamnesis_pipeline.pipeline.memory_map import MemoryMap

SIZE_PX = 560
COLOURED = 11
"""Projects with a separate colour; all others share the last one."""
COLOURS = (
    (247, 247, 251),
    (52, 68, 184),
    (179, 84, 30),
    (27, 110, 60),
    (148, 43, 130),
    (0, 124, 145),
    (138, 110, 0),
    (190, 40, 60),
    (95, 75, 180),
    (70, 110, 20),
    (120, 80, 60),
    (200, 80, 150),
    (120, 124, 140),
)
"""Background, projects, all others."""
DOT_PX, DOT_PX_OF_MANY, MANY = 3, 2, 20_000
_BITS = 4
"""Bits per pixel: 16 colours."""


def picture_of(made: MemoryMap) -> bytes:
    """Return a PNG of `SIZE_PX` squared: each point a dot, the largest project at the bottom."""
    dot = DOT_PX if len(made.places) <= MANY else DOT_PX_OF_MANY
    pixels = np.zeros((SIZE_PX, SIZE_PX), np.uint8)
    at = made.places.astype(np.int64) * (SIZE_PX - dot) // SIDE
    colours = 1 + np.minimum(np.repeat(np.arange(len(made.counts)), np.diff(made.starts)), COLOURED)
    for right in range(dot):
        for down in range(dot):
            pixels[at[:, 1] + down, at[:, 0] + right] = colours
    return png_of(pixels)


def png_of(pixels: NDArray[np.uint8]) -> bytes:
    """Return a palette PNG (ISO 15948) of indices into `COLOURS`, shape (height, width), width even."""
    height, width = pixels.shape
    packed = (pixels[:, 0::2] << _BITS) | pixels[:, 1::2]
    lines = np.zeros((height, 1 + packed.shape[1]), np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = packed
    header = struct.pack(">IIBBBBB", width, height, _BITS, 3, 0, 0, 0)
    palette = bytes(value for colour in COLOURS for value in colour)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
