"""Heat maps as images."""

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from synthattn.render.charts import FONTS, GREY

VIRIDIS = ["440154", "482475", "414487", "355f8d", "2a788e", "21918c", "22a884", "44bf70", "7ad151", "bddf26", "fde725"]
LEVELS = 32


def _palette() -> bytes:
    anchors = [[int(each[n : n + 2], 16) for n in (0, 2, 4)] for each in VIRIDIS]
    found = []
    for level in range(LEVELS):
        at = level / (LEVELS - 1) * (len(anchors) - 1)
        one, other = anchors[int(at)], anchors[min(int(at) + 1, len(anchors) - 1)]
        found += [round(a + (b - a) * (at % 1)) for a, b in zip(one, other, strict=True)]
    return bytes(found)


PALETTE = _palette()


def heat_map(values: bytes, size: int) -> str:
    """Return a PNG as base64, of ``size`` rows with a byte for each cell; cells that are missing count as zero."""
    levels = bytes(value * LEVELS // 256 for value in values[: size * size].ljust(size * size, b"\0"))
    rows = b"".join(b"\0" + levels[n * size : (n + 1) * size] for n in range(size))
    head = struct.pack(">IIBBBBB", size, size, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", PALETTE), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*chunks, strict=True)))).decode()


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


class ImageRow(NamedTuple):
    """Heat maps beside each other, each with its name above it."""

    names: Sequence[str]
    maps: Sequence[bytes]


def image_grid(title: str, rows: Sequence[ImageRow], size: int, side: int = 160) -> str:
    """Return heat maps as one SVG, for a file that stands alone.

    Args:
        title: says what is seen.
        rows: the maps, of a byte for each cell.
        size: rows and columns of each map.
        side: width and height of each in pixels.
    """
    wide, tall = side + 90, side + 34
    parts = []
    for n, row in enumerate(rows):
        for m, (name, values) in enumerate(zip(row.names, row.maps, strict=True)):
            x, y = m * wide, n * tall
            parts.append(f'<text x="{x}" y="{y + 14}" fill="{GREY}">{escape(name)}</text>')
            parts.append(
                f'<image x="{x}" y="{y + 22}" width="{side}" height="{side}" style="image-rendering:pixelated" '
                f'href="data:image/png;base64,{heat_map(values, size)}"/>'
            )
    width, height = wide * max(len(row.maps) for row in rows), tall * len(rows)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    said = f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}" font-family="{FONTS}" font-size="12"'
    return f"{head} {said}>{''.join(parts)}</svg>\n"
