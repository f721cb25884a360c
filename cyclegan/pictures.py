"""Pictures from files: found, decoded whole and upright, resized to uint8; no TensorFlow."""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import threading

import numpy as np
import tqdm
from PIL import Image, ImageOps, UnidentifiedImageError

from cyclegan.errors import UserError, printable

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif")
FORMATS = (
    "JPEG",
    "PNG",
    "BMP",
    "WEBP",
    "GIF",
    "TIFF",
)  # what is in them, whatever their names say; no EPS, which is a program
LARGEST = 180_000_000  # pixels: 0.7 GB decoded, above any camera's; more is a mistake or an attack
LARGE = 25_000_000  # pixels: pictures above this are decoded one at a time, for the memory's sake
LISTED = 10  # at most so many files are named in an error

Image.MAX_IMAGE_PIXELS = None  # decode looks for itself, before anything is decoded
_one_at_a_time = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Pictures:
    """The pictures of one domain and split: `images` uint8 [N, S, S, 3], `names` a list of N texts."""

    images: np.ndarray
    names: list

    def __len__(self):
        return len(self.names)


def find(folder):
    """The picture files below a folder, as sorted paths relative to it; hidden files and folders are left out.

    Linked folders are followed, each folder once.
    """
    found, seen = [], set()
    for where, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(where)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__MACOSX")) and os.path.realpath(os.path.join(where, name)) not in seen
        ]
        found += [
            os.path.relpath(os.path.join(where, name), folder)
            for name in files
            if name.lower().endswith(ENDINGS) and not name.startswith(".") and os.path.isfile(os.path.join(where, name))
        ]
    return sorted(found)


def decode(path):
    """Reads a picture file as an RGB PIL image: upright by its EXIF, the first frame, transparency over white.

    16-bit grayscale is scaled to 8 bits.

    Raises:
        ValueError: it has more than `LARGEST` pixels, by its header; nothing is decoded.
        OSError and others of Pillow's: the file is not a picture that can be decoded whole.
    """
    with Image.open(path, formats=FORMATS) as image:
        width, height = image.size
        if width * height > LARGEST:
            raise ValueError(f"{width} x {height} pixels: expected at most {LARGEST // 1_000_000} million")
        with _one_at_a_time if width * height > LARGE else contextlib.nullcontext():
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image))


def _to_rgb(image):
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.float64)
        image = Image.fromarray(np.clip(values / 257, 0, 255).round().astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def resize(image, size):
    """A PIL image as uint8 [size, size, 3], bicubic."""
    image = image if image.size == (size, size) else image.resize((size, size), Image.BICUBIC)
    return np.asarray(image)


def read(files, sizes, bars=False):
    """Decodes files, several at a time.

    Args:
        files: dict of lists of paths, by split.
        sizes: dict of sides in pixels, by split.
        bars: show a progress bar.

    Returns:
        dict of uint8 [N, size, size, 3], by split.

    Raises:
        UserError: some do not decode (at most ten are named), or all together do not fit into the memory.
    """
    counts = {split: len(paths) for split, paths in files.items()}
    check_memory(counts, sizes)
    images = {split: np.empty((count, sizes[split], sizes[split], 3), np.uint8) for split, count in counts.items()}
    jobs = [(split, i, path) for split, paths in files.items() for i, path in enumerate(paths)]
    broken = []

    def read_one(job):
        split, i, path = job
        try:
            images[split][i] = resize(decode(path), sizes[split])
        except Exception as error:  # Pillow's decoders raise almost anything on a damaged file; each is reported below
            reason = "not a picture" if isinstance(error, UnidentifiedImageError) else error
            broken.append(printable(f"{path} ({reason or type(error).__name__})"))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = pool.map(read_one, jobs)
        for _ in tqdm.tqdm(done, "Decoding", len(jobs), unit=" images", disable=not bars or None, leave=False):
            pass
    if broken:
        names = "; ".join(sorted(broken)[:LISTED])
        more = f" and {len(broken) - LISTED} more" if len(broken) > LISTED else ""
        raise UserError(f"{len(broken)} of {len(jobs)} pictures do not decode; repair or remove them: {names}{more}")
    return images


def check_memory(counts, sizes):
    """Refuses what would not fit: dicts of counts and sides (pixels) by split.

    Raises:
        UserError: the decoded pictures need more memory than is free (known on Linux only).
    """
    needed = sum(count * 3 * sizes[split] ** 2 for split, count in counts.items())
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return  # not Linux
    if needed > free:
        raise UserError(
            f"the decoded pictures need {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free:"
            " expected less; use fewer pictures or a smaller --load_size"
        )
