"""Arrays and volumes, slice by slice: NumPy (.npy, .npz), and NIfTI with nibabel; and volumes of translated slices."""

from __future__ import annotations

import contextlib
import gzip
import logging
import math
import pathlib
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from cyclegan.errors import MissingPackageError
from cyclegan.images.image import (
    LEVEL_TYPES,
    MAX_BYTES,
    OTHER_TYPES,
    Bands,
    Header,
    ImageError,
    ImageReader,
    Metadata,
    Stack,
    check_size,
)
from cyclegan.images.pillow_format import without_single_axis

NPY, ZIP, GZIP = b"\x93NUMPY", b"PK\3\4", b"\x1f\x8b"
NAME_BYTES = 300  # of an archive, that hold the first name
NPZ_NAMES = ("image", "arr_0")  # of the array of images, if a file has several
# Places of the first bytes that tell NIfTI versions apart.
NIFTI_MAGIC = {1: slice(344, 348), 2: slice(4, 8)}
NIFTI_1_BYTES, NIFTI_BYTES = 348, 540  # of the headers of version 1 and of version 2
MAX_OFFSET = 100_000_000  # bytes before the values, of extensions of the header
AXIAL = 2
# Anatomical axes (to the left, to the back, up) of slices, rows and columns, by the axis along which slices lie.
PLANES = {0: (0, 2, 1), 1: (1, 2, 0), AXIAL: (2, 1, 0)}
IDENTITY = np.array([[0, 1], [1, 1], [2, 1]])  # orientation of a volume whose affine says nothing


class Layout(NamedTuple):
    """Order of the images of an array of four axes."""

    shape: tuple[int, ...]  # of the array, four axes
    order: tuple[int, ...]  # axes of the array that are images, rows, columns and channels
    steps: tuple[int, ...] = (1, 1, 1, 1)  # of these, -1 for a reversed axis

    def images(self, array: np.ndarray) -> np.ndarray:
        """Return the images [n, h, w, C] of an array, as a view."""
        return array.transpose(self.order)[tuple(slice(None, None, step) for step in self.steps)]

    def array_shape(self, images: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an array with images of the shape [n, h, w, C]."""
        return tuple(images[self.order.index(axis)] for axis in range(4))


class Packed(NamedTuple):
    """An array that has to be unpacked as a whole."""

    shape: tuple[int, ...]
    dtype: np.dtype
    load: Callable[[], np.ndarray]


class VolumeReader(ImageReader):
    """Read an image of an array.

    Args:
        name: Name of the format.
        array: The array; a packed one is unpacked when an image is read.
        layout: Function that returns the layout for an axis along which slices lie, `None` for the usual one.
        original: The header of nibabel, or the name of the array in a file.
        scale: Slope and intercept of the values.
        split: Whether channels are images of their own unless their number is the one that is wanted.
    """

    has_axes = True

    def __init__(
        self,
        name: str,
        array: np.ndarray | Packed,
        layout: Callable[[int | None], Layout],
        original: Any = "",
        scale: tuple[float, float] = (1, 0),
        split: bool = False,
    ) -> None:
        self.array, self.original, self._scale, self._name = array, original, scale, name
        self._make_layout, self._split, self._index = layout, split, 0
        self.nbytes = 0 if isinstance(array, np.memmap) else math.prod(array.shape) * array.dtype.itemsize
        _check_unpacked(self.nbytes)
        if array.dtype.name not in (*LEVEL_TYPES, *OTHER_TYPES):
            raise ImageError(f"an array of {array.dtype.name}: expected {', '.join((*LEVEL_TYPES, *OTHER_TYPES))}")
        self.along(None)

    def along(self, axis: int | None) -> ImageReader:
        """Return the reader of the first slice along an axis."""
        self.layout = self._make_layout(axis)
        dtype = self.array.dtype
        self.shape = tuple(self.layout.shape[axis] for axis in self.layout.order)
        count, height, width, bands = self.shape
        if count < 1 or bands < 1:
            raise ImageError(f"an array of shape {self.array.shape}: expected at least one image")
        self._is_other = self._scale != (1, 0) or dtype.name in OTHER_TYPES
        values = height * width * (1 if self._split else bands)
        check_size(width, height, 2 * values * (8 if self._is_other else 2))
        self.header = Header(
            *(height, width, bands, self._name),
            deep=dtype.itemsize > 1,
            colors=self._split or bands in (1, 3),
            complete=not isinstance(self.array, Packed),
            other_values=dtype.name if self._is_other else "",
        )
        return self

    def count(self, channels: int) -> int:
        """Return the number of images."""
        return self.shape[0] * (self.shape[3] if self._is_split(channels) else 1)

    def _is_split(self, channels: int) -> bool:
        return self._split and channels != self.shape[3]

    def at(self, index: int) -> ImageReader:
        """Return the reader of an image."""
        self._index = index
        return self

    def read(self, channels: int) -> Bands:
        """Decode the image."""
        if isinstance(self.array, Packed):
            self.array = self.array.load()
        images = self.layout.images(self.array.reshape(self.layout.shape, order="A"))
        band, number = divmod(self._index, self.shape[0])
        bands = slice(band, band + 1) if self._is_split(channels) else slice(None)
        values = images[number, :, :, bands]
        if self._is_other:
            slope, intercept = self._scale
            values = values.astype(np.float32 if values.dtype.itemsize <= 2 else np.float64)
            values = values if self._scale == (1, 0) else values * slope + intercept
        elif values.dtype == bool:
            values = values * np.uint8(255)
        else:
            values = values.astype(values.dtype.newbyteorder("="))
        fractional = "float" in self.header.other_values or self._scale != (1, 0)
        name = self.original if isinstance(self.original, str) else ""
        return Bands(np.ascontiguousarray(values), metadata=Metadata(array=name), fractional=fractional)


def open_npy(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a .npy file, `None` for other files."""
    if file.read(len(NPY)) != NPY:
        return None
    file.seek(0)
    path = getattr(file, "name", None)  # `None` for a file in memory
    array = np.load(path or file, "r" if path else None, allow_pickle=False)
    return VolumeReader("npy", array, _layout_of(array))


def open_npz(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a .npz file: of its only array, or of the one with a name of `NPZ_NAMES`."""
    beginning = file.read(NAME_BYTES)
    if not beginning.startswith(ZIP) or not (b".npy" in beginning or zipfile.is_zipfile(file)):
        return None  # or another archive that is damaged
    file.seek(0)
    archive = np.load(file, allow_pickle=False)
    names = [name for name in archive.files if f"{name}.npy" in archive.zip.namelist()]
    if not names:
        return None
    chosen = names if len(names) == 1 else [name for name in NPZ_NAMES if name in names]
    if not chosen:
        raise ImageError(
            f"an NPZ file of the arrays {', '.join(names)}: expected one array, or one named {NPZ_NAMES[0]}"
        )
    _check_unpacked(archive.zip.getinfo(f"{chosen[0]}.npy").file_size)
    array = archive[chosen[0]]
    return VolumeReader("npz", array, _layout_of(array), chosen[0])


def _layout_of(array: np.ndarray) -> Callable[[int | None], Layout]:
    """Return the function that makes the layout of an array of NumPy."""
    shape = array.shape
    if not 2 <= len(shape) <= 4:
        raise ImageError(f"an array of shape {shape}: expected [h, w], [h, w, C] or [n, h, w, C]")

    def make(axis: int | None) -> Layout:
        if len(shape) == 2:
            return Layout((1, *shape, 1), (0, 1, 2, 3))
        if len(shape) == 3 and axis is None:
            return Layout((1, *shape), (0, 1, 2, 3))
        first = axis or 0
        others = [each for each in range(3) if each != first]
        return Layout((*shape, 1)[:4], (first, *others, 3))

    return make


def open_nifti(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a NIfTI file, also a compressed one, `None` for other files."""
    beginning = file.read(NIFTI_BYTES)
    packed = beginning.startswith(GZIP)
    if packed:
        file.seek(0)
        with contextlib.suppress(EOFError, OSError):  # another file, or a damaged one
            beginning = gzip.GzipFile(fileobj=file).read(NIFTI_BYTES)
    version = next((n for n, place in NIFTI_MAGIC.items() if beginning[place] == b"n+%d\0" % n), None)
    if version is None:
        return None
    nibabel = _nibabel()
    kind = nibabel.Nifti1Image if version == 1 else nibabel.Nifti2Image
    offset = int(kind.header_class(beginning[: kind.header_class.template_dtype.itemsize]).get_data_offset())
    if offset > MAX_OFFSET:
        raise ImageError(f"a NIfTI file whose values begin at byte {offset}: expected at most {MAX_OFFSET}")
    file.seek(0)
    content: Any = gzip.GzipFile(fileobj=file) if packed else file
    holder = nibabel.FileHolder(fileobj=content)
    image = kind.from_file_map({"image": holder, "header": holder})
    proxy = image.dataobj
    if not 2 <= len(proxy.shape) <= 5 or proxy.dtype.names:
        raise ImageError(f"a NIfTI file of {proxy.dtype} of shape {proxy.shape}: expected numbers of 2 to 5 dimensions")

    def load() -> np.ndarray:
        array = proxy.get_unscaled()
        content.read(1)  # checks the checksum of a packed file
        return array

    return VolumeReader(
        *("nifti", Packed(proxy.shape, proxy.dtype, load) if packed else load()),
        lambda axis: _anatomical(nibabel, image.header, proxy.shape, axis),
        original=image.header,
        scale=(float(proxy.slope), float(proxy.inter)),
        split=True,
    )


def _nibabel() -> Any:
    try:
        import nibabel
    except ImportError:
        raise MissingPackageError("NIfTI files need the package nibabel: pip install nibabel") from None
    logging.getLogger("nibabel.global").setLevel(logging.CRITICAL)  # about headers, without the name of the file
    return nibabel


def _anatomical(nibabel: Any, header: Any, shape: tuple[int, ...], axis: int | None) -> Layout:
    """Return the layout of a NIfTI volume, in which all volumes have the view of DICOM images, however they are stored.

    Slices are numbered from the right, the front or the bottom; heads look up or to the left.
    """
    orientations = nibabel.orientations
    try:
        found = orientations.io_orientation(header.get_best_affine())
    except (ValueError, np.linalg.LinAlgError):
        found = IDENTITY
    found = IDENTITY if np.isnan(found).any() else found
    turned = orientations.ornt_transform(found, orientations.axcodes2ornt("LPS"))
    axis = AXIAL if axis is None else axis
    order = [int(np.flatnonzero(turned[:, 0] == each)[0]) for each in PLANES[axis]]
    steps = [int(turned[each, 1]) for each in order]
    steps[1] *= 1 if axis == AXIAL else -1  # the first row is the top
    three = (*shape, 1, 1)[:3]
    return Layout((*three, math.prod(shape[3:])), (*order, 3), (*steps, 1))


def _check_unpacked(size: int) -> None:
    """Raise `ImageError` if an array that has to be unpacked takes more than `MAX_BYTES` of memory."""
    if size > MAX_BYTES:
        raise ImageError(
            f"a compressed array of {size / 1e9:.3g} GB: expected at most {MAX_BYTES / 1e9:g} GB, or an unpacked file,"
            " whose slices are read one by one"
        )


def _stack(
    original: ImageReader, shape: tuple[int, ...], save: Callable[[np.ndarray], None], order: Literal["C", "F"]
) -> Stack:
    """Return the stack of images of the shape [n, h, w, C]: an array with the axes of the original if that is one."""
    count, height, width, channels = shape
    layout, split, before = Layout(shape, (0, 1, 2, 3)), 1, shape[:3]
    if isinstance(original, VolumeReader):
        layout, split, before = original.layout, count // original.shape[0], original.array.shape
    whole = layout.array_shape((count // split, height, width, split * channels))
    final = (*whole[:3], *before[3:]) if math.prod(before[3:]) == whole[3] else whole
    final = final[: len(before)] if math.prod(final[len(before) :]) == 1 else final

    def put(array: np.ndarray, number: int, pixels: np.ndarray) -> None:
        band, index = divmod(number, count // split)
        layout.images(array)[index, :, :, band * channels : (band + 1) * channels] = pixels

    return Stack(whole, put, lambda array: save(array.reshape(final, order=order)), order)


def write_npy(path: pathlib.Path, bands: np.ndarray, has_opacity: bool, metadata: Metadata, name: str = "") -> None:
    """Write an image, one of one channel as [h, w], as .npy, or with a `name` for an array that has none as .npz."""
    _save_array(path, without_single_axis(bands), name and (metadata.array or name))


def create_npy(
    path: pathlib.Path, original: ImageReader, shape: tuple[int, ...], dtype: Any, metadata: Metadata, name: str = ""
) -> Stack:
    """Write a stack of images as .npy or .npz, see `write_npy` and `CreateStack`."""
    return _stack(original, shape, lambda array: _save_array(path, array, name and (metadata.array or name)), "C")


def _save_array(path: pathlib.Path, array: np.ndarray, name: str) -> None:
    with open(path, "wb") as file:
        if name:
            arrays: dict[str, Any] = {name: array}
            np.savez_compressed(file, **arrays)
        else:
            np.lib.format.write_array(file, array, allow_pickle=False)


def create_nifti(
    path: pathlib.Path, original: ImageReader, shape: tuple[int, ...], dtype: Any, metadata: Metadata
) -> Stack:
    """Write a NIfTI file with the header and, if the values fit, the type of its original; see `CreateStack`.

    The display window of the original does not hold for the translation. If the images have another size, the volume
    fills the same space.
    """
    nibabel = _nibabel()
    if not isinstance(original, VolumeReader) or isinstance(original.original, str):
        raise ImageError("expected a NIfTI file as original, or --format tiff")
    header, before = original.original.copy(), original.layout.shape

    def save(array: np.ndarray) -> None:
        stored = header.get_data_dtype()
        header.set_data_dtype(stored if stored.itemsize > 1 or np.can_cast(dtype, stored) else dtype)
        header["cal_min"] = header["cal_max"] = 0
        ratios = [old / new for old, new in zip(before[:3], (*array.shape, 1)[:3])]
        if any(ratio != 1 for ratio in ratios):
            _scale(header, np.array(ratios))
        kind = nibabel.Nifti1Image if header["sizeof_hdr"] == NIFTI_1_BYTES else nibabel.Nifti2Image
        with contextlib.ExitStack() as stack:
            file: Any = stack.enter_context(open(path, "wb"))
            if path.suffix == ".gz":
                file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
            kind(array, None, header).to_stream(file)

    return _stack(original, shape, save, "F")


def _scale(header: Any, ratios: np.ndarray) -> None:
    """Make the voxels of a NIfTI header larger by factors, in the same space."""
    grow = np.diag([*ratios, 1.0])
    grow[:3, 3] = (ratios - 1) / 2  # the center of the first voxel moves
    for get, put in ((header.get_sform, header.set_sform), (header.get_qform, header.set_qform)):
        affine, code = get(coded=True)
        if code:
            put(affine @ grow, code)
    header["pixdim"][1:4] *= ratios if not header["qform_code"] else 1
