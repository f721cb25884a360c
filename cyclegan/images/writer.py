"""Writing of image files, at full depth if the format supports it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
from collections.abc import Iterator

import numpy as np

from cyclegan.errors import UserError
from cyclegan.images.formats import FORMATS, format_of
from cyclegan.images.image import DecodedImage
from cyclegan.images.value_range import to_depth


def write(path: str | os.PathLike[str], image: DecodedImage, format: str | None = None) -> None:
    """Write an image file, completely or not at all, and make its folder.

    Drops opacity and the lower 8 of 16 bits if the format does not support them.

    Args:
        path: The file.
        image: The image.
        format: One of `FORMATS` that can be written; by default the format of the file name.

    Raises:
        UserError: The format does not support so many channels, or the name belongs to no format.
        OSError: The file cannot be written.
    """
    path = pathlib.Path(path)
    name = format or format_of(path.name)
    form = FORMATS.get(name or "")
    if form is None or form.write is None:
        raise UserError(f"{path.name}: expected the ending of an image format that can be written, such as .png")
    channels = image.pixels.shape[2]
    if channels not in (1, 3) and name != "tiff":
        raise UserError(f"{channels} channels don't fit into {name}: expected --format tiff")
    opacity = image.opacity if form.opacity else None
    bands = image.pixels if opacity is None else np.concatenate([image.pixels, opacity], axis=2)
    with partial_file(path) as partial:
        form.write(partial, bands if form.deep else to_depth(bands, np.uint8), opacity is not None, image.profile)


@contextlib.contextmanager
def partial_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Provide the path of a temporary file that becomes the file `path` if the context ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}-{threading.get_ident()}.partial")
    partial.unlink(missing_ok=True)  # of a killed process, or a link
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
