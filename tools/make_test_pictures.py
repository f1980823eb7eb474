#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/pictures: small pictures of every kind, broken ones, and what Pillow reads.

Needs Pillow, NumPy and safetensors. usage: make_test_pictures.py [FOLDER]
"""
import math
import pathlib
import struct
import sys
import zlib

import numpy as np
import PIL
from PIL import Image
from safetensors.numpy import save_file

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                      pathlib.Path(__file__).parent.parent / "tests/data/pictures")
folder.mkdir(parents=True, exist_ok=True)
BACKGROUND = (255, 255, 255)


def scene(width, height):
    """Ramps, waves and hard edges."""
    y, x = np.mgrid[0:height, 0:width]
    red = 127 + 120 * np.sin(x / 3.1 + y / 9)
    green = 255 * ((x // 5 + y // 4) % 2)
    blue = (x * 7 + y * 13) % 256
    return np.stack([red, green, blue], -1).astype(np.uint8)


def png(name, width, height, depth, colour, rows):
    """A PNG by hand, for what Pillow does not write."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    raw = b"".join(b"\0" + row for row in rows)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
                                chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def expected(rgb):
    """The reference's patches of an RGB picture: [1, patches, 3, 14, 14]."""
    height, width = rgb.shape[:2]
    patches = max(1, width // 14) * max(1, height // 14)
    scale = min(1.0, math.sqrt(65536 / patches), 7168 / width, 7168 / height)
    w, h = (min(7168, max(1, int(side * scale))) for side in (width, height))
    pixels = np.asarray(Image.fromarray(rgb).resize((w, h), Image.Resampling.BICUBIC))
    padded = np.zeros((-(-h // 28) * 28, -(-w // 28) * 28, 3), np.float64)
    padded[:h, :w] = pixels
    values = (padded * np.float64(np.float32(1 / 127.5)) - 1).astype(np.float32)
    gh, gw = padded.shape[0] // 14, padded.shape[1] // 14
    return np.ascontiguousarray(
        values.reshape(gh, 14, gw, 14, 3).transpose(0, 2, 4, 1, 3).reshape(1, -1, 3, 14, 14))


rgb = scene(31, 23)
grey = Image.fromarray(rgb).convert("L")
alpha = (np.mgrid[0:23, 0:31].sum(0) * 5 % 256).astype(np.uint8)
Image.fromarray(rgb).save(folder / "rgb.png")
Image.fromarray(np.dstack([rgb, alpha])).save(folder / "rgba.png")
grey.save(folder / "grey.png")
Image.fromarray(rgb).quantize(17).save(folder / "palette.png")
Image.fromarray(rgb).save(folder / "rgb.jpg", quality=85)
Image.fromarray(rgb).save(folder / "progressive.jpg", quality=85, progressive=True)
grey.save(folder / "grey.jpg", quality=85)
Image.fromarray(rgb).convert("CMYK").save(folder / "cmyk.jpg")
wide = scene(7300, 4)
Image.fromarray(wide).save(folder / "wide.png", optimize=True)
rgb16 = rgb.astype(np.uint16) * 256 + 77
png("rgb16.png", 31, 23, 16, 2, [row.astype(">u2").tobytes() for row in rgb16])

# Sizes alone matter: one bit a pixel, all black.
for width, height in ((1, 1), (28, 29), (27, 27), (448, 449), (7168, 14), (3700, 3700)):
    png(f"size_{width}x{height}.png", width, height, 1, 0, [bytes(-(-width // 8))] * height)
png("size_1000000x1000000.png", 10**6, 10**6, 1, 0, [b""])
png("size_0x5.png", 0, 5, 8, 2, [b""])

whole = (folder / "rgb.png").read_bytes()
(folder / "truncated.png").write_bytes(whole[:len(whole) // 2])
(folder / "damaged.png").write_bytes(whole[:60] + bytes([whole[60] ^ 255]) + whole[61:])
whole = (folder / "rgb.jpg").read_bytes()
(folder / "truncated.jpg").write_bytes(whole[:len(whole) * 2 // 3])
(folder / "header_only.jpg").write_bytes(whole[:20])
(folder / "neither.png").write_bytes(b"GIF89a no picture")

composed = np.asarray(Image.open(folder / "rgba.png")).astype(np.int64)
over = (composed[..., :3] * composed[..., 3:] +
        np.array(BACKGROUND) * (255 - composed[..., 3:]) + 127) // 255
tensors = {"rgba.png": expected(over.astype(np.uint8)), "rgb16.png": expected(rgb)}
for name in ("rgb.png", "grey.png", "palette.png", "rgb.jpg", "progressive.jpg", "grey.jpg"):
    tensors[name] = expected(np.asarray(Image.open(folder / name).convert("RGB")))
tensors["wide.png"] = np.ascontiguousarray(expected(wide)[:, 400:404])
save_file(tensors, folder / "expected.safetensors",
          {"source": f"Pillow {PIL.__version__} and NumPy; of wide.png patches 400 to 403"})
