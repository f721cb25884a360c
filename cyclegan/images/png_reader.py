"""Reading of PNG files: their checksums, and 16 bits through imagecodecs."""

from __future__ import annotations

import dataclasses
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageFile

from cyclegan.images.color import convert_bands
from cyclegan.images.geometry import upright
from cyclegan.images.image import DecodedImage, check_size
from cyclegan.images.pillow_reader import PillowReader, get_profile

BANDS = {0: 1, 2: 3, 4: 2, 6: 4}  # by color type (ISO/IEC 15948, 11.2.2); palettes have no 16 bits
DEPTH_OFFSET = 24  # bytes before the bit depth and the color type


class PngReader(PillowReader):
    """Read a PNG file that Pillow has opened."""

    def __init__(self, image: ImageFile.ImageFile, file: BinaryIO) -> None:
        super().__init__(image, file)
        self._file = file
        position = file.tell()
        file.seek(DEPTH_OFFSET)
        bits, color_type = file.read(2)
        file.seek(position)
        if bits == 16:
            self.header = dataclasses.replace(self.header, bands=BANDS[color_type], deep=True, mode="")
            check_size(*image.size, image.width * image.height * (2 * BANDS[color_type] + 8))

    def read(self, channels: int) -> DecodedImage:
        """Decode the image, upright.

        Raises:
            OSError, SyntaxError: A checksum is wrong. Pillow alone would decode most damaged files without an error.
        """
        position = self._file.tell()
        self._file.seek(0)
        Image.open(self._file, formats=["PNG"]).verify()
        if self.header.deep:
            return self._read_deep(channels)
        self._file.seek(position)
        return super().read(channels)

    def _read_deep(self, channels: int) -> DecodedImage:
        """Decode 16 bits per band with imagecodecs, because Pillow drops 8 of them if there are several bands."""
        import imagecodecs  # few files need it

        self._file.seek(0)
        pixels = np.atleast_3d(imagecodecs.png_decode(self._file.read()))
        has_opacity = pixels.shape[2] in (2, 4)  # also for a transparent color
        converted = convert_bands(upright(pixels, self._orientation), channels, has_opacity)
        return DecodedImage(*converted, get_profile(self._image))
