"""Pictures from files: found, decoded whole and upright, resized to uint8; no TensorFlow."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import io
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
CGROUP = pathlib.Path("/sys/fs/cgroup")  # of the container, if this is one
LISTED = 10  # at most so many files are named in an error
AHEAD = 64  # pictures that are waited for at the same time: what they take in memory is bounded
END = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}  # of a whole file, by format; no compressed pixels look like it
TAIL = 4096  # bytes at the end of a file in which it is looked for: cameras and programs add to it

Image.MAX_IMAGE_PIXELS = None  # decode looks for itself, before anything is decoded
_one_at_a_time = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Pictures:
    """The pictures of one domain and split.

    `images`: uint8 [N, S, S, 3], an array or a `cache.OnDemand`; `names`: N texts; `lengths`: of their files, in bytes, int64 [N].
    """

    images: object
    names: list
    lengths: np.ndarray

    def __len__(self):
        return len(self.names)


class Broken(Exception):
    """A picture does not decode. The text is its name and the reason, one printable line."""


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
        below = os.path.relpath(where, folder)
        found += [
            name if below == os.curdir else os.path.join(below, name)
            for name in files
            if name.lower().endswith(ENDINGS) and not name.startswith(".") and os.path.isfile(os.path.join(where, name))
        ]
    return sorted(found)


def decode(source):
    """Reads a picture as an RGB PIL image: upright by its EXIF, the first frame, transparency over white.

    16-bit grayscale is scaled to 8 bits.

    Args:
        source: a path, or the bytes of a file.

    Raises:
        ValueError: it has more than `LARGEST` pixels, by its header; nothing is decoded.
        OSError and others of Pillow's: the file is not a picture that can be decoded whole.
    """
    with _opened(source) as file, _header(file) as image:
        width, height = image.size
        with _one_at_a_time if width * height > LARGE else contextlib.nullcontext():
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image))


def check(source):
    """Looks at a picture (see `decode`) as far as that costs next to nothing: at its header and at its end.

    Only where the end is not where it should be (much may follow it in a valid file) is the whole decoded.

    Returns:
        Its length in bytes.

    Raises:
        What `decode` raises.
    """
    with _opened(source) as file, _header(file) as image:
        first = file.tell()  # a thumbnail in the header has an end too
        length = file.seek(0, os.SEEK_END)
        file.seek(max(first, length - TAIL))
        whole = END.get(image.format, b"") in file.read()
    if not whole:
        decode(source)
    return length


def _opened(source):
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _header(file):
    image = Image.open(file, formats=FORMATS)
    width, height = image.size
    if width * height > LARGEST:
        raise ValueError(f"{width} x {height} pixels: expected at most {LARGEST // 1_000_000} million")
    return image


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


def pixels(source, name, size):
    """A picture (see `decode`) as uint8 [size, size, 3].

    Raises:
        Broken: it does not decode.
    """
    with _named(name):
        return resize(decode(source), size)


@contextlib.contextmanager
def _named(name):
    try:
        yield
    except Exception as error:  # Pillow's decoders raise almost anything on a damaged file
        reason = "not a picture" if isinstance(error, UnidentifiedImageError) else error
        raise Broken(printable(f"{name} ({reason or type(error).__name__})")) from error


def read(files, sizes, bars=False):
    """Decodes all, several at a time.

    Args:
        files: dict of lists (or what has a length and gives one after the other) of paths or of files' bytes, by split.
        sizes: dict of sides in pixels, by split.
        bars: show a progress bar.

    Returns:
        (images, lengths): dicts of uint8 [N, size, size, 3] and of the files' lengths in bytes, int64 [N], by split.

    Raises:
        UserError: some do not decode (at most ten are named), or all together do not fit into the memory.
    """
    counts = {split: len(sources) for split, sources in files.items()}
    check_memory(counts, sizes)
    images = {split: np.empty((count, sizes[split], sizes[split], 3), np.uint8) for split, count in counts.items()}

    def read_one(split, i, source):
        images[split][i] = resize(decode(source), sizes[split])
        return len(source) if isinstance(source, bytes) else os.path.getsize(source)

    return images, _for_each(files, read_one, "Decoding", bars)


def look(files, bars=False):
    """Looks at all without decoding them (see `check`), several at a time.

    Args and raises: as `read`, but for the memory.

    Returns:
        The files' lengths in bytes, a dict of int64 [N] by split.
    """
    return _for_each(files, lambda split, i, source: check(source), "Looking", bars)


def _for_each(files, function, title, bars):
    """Calls function(split, i, source) for each source of `files`. Returns what it returns, int64 [N] by split.

    Raises:
        UserError: it raised something for some, of which at most ten are named.
    """
    results = {split: np.zeros(len(sources), np.int64) for split, sources in files.items()}
    broken = []

    def try_one(split, i, source):
        try:
            with _named(name_of(source, split, i)):
                results[split][i] = function(split, i, source)
        except Broken as error:
            broken.append(str(error))

    total = sum(map(len, results.values()))
    bar = tqdm.tqdm(desc=title, total=total, unit=" images", disable=not bars or None, leave=False)
    with bar, concurrent.futures.ThreadPoolExecutor() as pool:
        running = collections.deque()
        for split, sources in files.items():
            for i, source in enumerate(sources):
                if len(running) == AHEAD:
                    running.popleft().result()
                    bar.update()
                running.append(pool.submit(try_one, split, i, source))
        for future in running:
            future.result()
            bar.update()
    if broken:
        names = "; ".join(sorted(broken)[:LISTED])
        more = f" and {len(broken) - LISTED} more" if len(broken) > LISTED else ""
        raise UserError(f"{len(broken)} of {total} pictures do not decode; repair or remove them: {names}{more}")
    return results


def name_of(source, split, i):
    """What an error calls the picture `i` of a split: its path, where it has one."""
    return f"{split}[{i}]" if isinstance(source, bytes) else source


def bytes_needed(counts, sizes):
    """How much memory decoded pictures take: dicts of counts and sides (pixels) by split."""
    return sum(count * 3 * sizes[split] ** 2 for split, count in counts.items())


def free_memory():
    """Bytes of memory that are free, also by a container's limit; all that there is, where that is not known (it is on Linux)."""
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return free  # no container, or one without a limit ("max")
    return max(0, min(free, limit - used))


def check_memory(counts, sizes):
    """Refuses what would not fit: dicts of counts and sides (pixels) by split.

    Raises:
        UserError: the decoded pictures need more memory than is free.
    """
    needed, free = bytes_needed(counts, sizes), free_memory()
    if needed > free:
        raise UserError(
            f"the decoded pictures need {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free:"
            " expected less; use --cache disk, fewer pictures or a smaller --load_size"
        )
