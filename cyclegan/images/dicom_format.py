"""DICOM with pydicom: reading of rescaled values, such as Hounsfield units, and writing of copies with other pixels."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO

import imagecodecs
import numpy as np

from cyclegan.config.data import ValueRange
from cyclegan.errors import MissingPackageError, printable
from cyclegan.images.codec_format import JPEG, JPEG_2000, JPEG_LS, LOSSLESS_JPEG, size_of
from cyclegan.images.image import Bands, Header, ImageError, ImageReader, check_size
from cyclegan.images.value_range import FULL_RANGE, HIGHEST, to_levels

PREFIX, PREFIX_OFFSET = b"DICM", 128
DEFLATED = b"1.2.840.10008.1.2.1.99"  # a transfer syntax that unpacks to any size
META_BYTES = 2048  # at the beginning of a file, which name its transfer syntax
ITEM = b"\xfe\xff\x00\xe0"  # begins a piece of compressed pixels
SLACK = 100_000  # bytes of a compressed file besides twice those of its pixels at most; more might decode to any size
YBR = ("YBR_FULL", "YBR_FULL_422")
PALETTE = "PALETTE COLOR"
BANDS = {"MONOCHROME1": 1, "MONOCHROME2": 1, PALETTE: 1, **dict.fromkeys((*YBR, "YBR_RCT", "YBR_ICT", "RGB"), 3)}
FUNCTIONAL_GROUPS = ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")  # of enhanced DICOM
# DICOM attributes that describe the pixels of the original, and would be wrong for its translation.
STALE = (
    *("SmallestImagePixelValue", "LargestImagePixelValue", "PixelPaddingValue", "PixelPaddingRangeLimit"),
    *("NumberOfFrames", "FrameIncrementPointer", "VOILUTSequence", "IconImageSequence", "PixelDataProviderURL"),
    *("PlanarConfiguration", "PresentationLUTShape", "WindowCenterWidthExplanation", "VOILUTFunction"),
    *("Units", "RealWorldValueMappingSequence"),  # such as HU, which another domain need not have
    *("ExtendedOffsetTable", "ExtendedOffsetTableLengths", "DigitalSignaturesSequence", "MACParametersSequence"),
)
SPACINGS = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")  # in mm, of rows and of columns
OVERLAY_GROUPS = range(0x6000, 0x6020, 2)
DESCRIPTION_LENGTH = 1024  # of the value representation ST


class DicomReader(ImageReader):
    """Read a frame of a DICOM file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._index = file, 0
        self._decoded: tuple[Any, np.ndarray] | None = None  # the dataset and all frames, after the first one is read
        dataset = _read_dataset(file, stop_before_pixels=True)
        self._frames = int(dataset.get("NumberOfFrames") or 1)
        start, length = file.tell(), file.seek(0, os.SEEK_END)
        if not (dataset.get("Rows") or dataset.get("Columns")):
            kind = dataset.get("SOPClassUID") or dataset.file_meta.get("MediaStorageSOPClassUID")
            raise ImageError(f"DICOM without an image (its kind: {printable(getattr(kind, 'name', 'not known'))})")
        missing = [f"no {name}" for name in ("Rows", "Columns", "BitsAllocated", "BitsStored") if not dataset.get(name)]
        missing += ["no PixelData"] if start == length else []
        self._photometric, stored_bands = dataset.get("PhotometricInterpretation"), dataset.get("SamplesPerPixel", 1)
        if missing or BANDS.get(self._photometric) != stored_bands:
            what = (*missing, f"photometric interpretation {self._photometric} of {stored_bands} samples")[0]
            raise ImageError(f"DICOM, {what}: expected an image, {', '.join(BANDS)}")
        if "ModalityLUTSequence" in dataset:
            raise ImageError("DICOM with a lookup table: expected slope and intercept")
        highest, bits = dataset.get("HighBit"), dataset.BitsStored
        if highest is not None and highest != bits - 1:
            raise ImageError(f"DICOM, HighBit {highest} with {bits} BitsStored: expected {bits - 1}")
        height, width = dataset.Rows, dataset.Columns
        self._is_colored = not self._photometric.startswith("MONOCHROME")
        bands = 3 if self._is_colored else 1
        values = height * width * bands
        stored = values * self._frames * dataset.BitsAllocated // 8
        check_size(width, height, 2 * stored + 16 * values)
        self.nbytes = 2 * stored if self._frames > 1 else 0
        is_compressed = dataset.file_meta.TransferSyntaxUID.is_compressed
        if is_compressed and length - start > 2 * stored + SLACK:
            raise ImageError(f"DICOM, {length - start} bytes of compressed pixels for {stored} bytes: expected fewer")
        # Compressed images count as damaged, so that they are decoded before training: a decoder may be missing.
        complete = not is_compressed and length - start >= stored
        deep = not self._is_colored or bits > 8 or self._photometric == PALETTE
        other = "" if self._is_colored else "DICOM"
        self.header = Header(height, width, bands, "dicom", deep, complete=complete, other_values=other)

    def count(self, channels: int) -> int:
        """Return the number of frames."""
        return self._frames

    def at(self, index: int) -> ImageReader:
        """Return the reader of a frame."""
        self._index = index
        return self

    def read(self, channels: int) -> Bands:
        """Decode the frame. MONOCHROME1, in which low values are white, is inverted."""
        if self._decoded is None:
            dataset = _read_dataset(self._file)
            self._decoded = dataset, _decode(dataset)
        dataset, frames = self._decoded
        stored = frames[self._index]
        if self._is_colored:
            return Bands(self._read_colors(dataset, stored))
        unused = dataset.BitsAllocated - dataset.BitsStored
        stored = stored << unused >> unused  # old files have overlays there
        dtype = np.float32 if dataset.BitsStored <= 16 else np.float64
        values = stored.reshape(dataset.Rows, dataset.Columns, -1).astype(dtype)
        if self._photometric == "MONOCHROME1":
            values = (-1 if dataset.get("PixelRepresentation") else 2**dataset.BitsStored - 1) - values
        slope, intercept = _rescaling(dataset, self._index)
        fractional = not (slope.is_integer() and intercept.is_integer())
        return Bands(values * slope + intercept, fractional=fractional)

    def _read_colors(self, dataset: Any, stored: np.ndarray) -> np.ndarray:
        """Return RGB, which needs no value range."""
        from pydicom.pixel_data_handlers import apply_color_lut, convert_color_space

        colors = stored
        if self._photometric == PALETTE:
            colors = apply_color_lut(stored, dataset)
        elif self._photometric in YBR and not hasattr(dataset, "pixel_array_options"):  # pydicom 3 has converted it
            colors = convert_color_space(stored, "YBR_FULL", "RGB")
        highest = np.iinfo(np.uint16 if self.header.deep else np.uint8).max
        white = np.iinfo(colors.dtype).max if self._photometric == PALETTE else 2**dataset.BitsStored - 1
        levels = colors if highest == white else np.rint(colors * (highest / white))
        return levels.astype(f"u{1 + self.header.deep}")


def open_image(file: BinaryIO) -> DicomReader | None:
    """Return the reader of a DICOM file, `None` for other files."""
    return DicomReader(file) if is_dicom(file) else None


def is_dicom(file: BinaryIO) -> bool:
    """Return whether a file is DICOM."""
    return file.read(PREFIX_OFFSET + len(PREFIX))[PREFIX_OFFSET:] == PREFIX


def _read_dataset(file: BinaryIO, **options: Any) -> Any:
    """Return the `pydicom.Dataset` of a file."""
    try:
        import pydicom
    except ImportError:
        raise MissingPackageError("DICOM files need the package pydicom: pip install pydicom") from None
    logging.getLogger("pydicom").setLevel(logging.CRITICAL)  # this reader raises errors itself
    warnings.filterwarnings("ignore", module="pydicom")
    file.seek(0)
    if DEFLATED in file.read(META_BYTES):
        raise ImageError("a deflated DICOM file: expected another transfer syntax")
    file.seek(0)
    return pydicom.dcmread(file, **options)


def _rescaling(dataset: Any, frame: int) -> tuple[float, float]:
    """Return slope and intercept of a frame; enhanced DICOM has them for all frames or for each."""
    groups = [dataset[name].value[number] for name, number in zip(FUNCTIONAL_GROUPS, (0, frame)) if dataset.get(name)]
    inner = [
        group.PixelValueTransformationSequence[0] for group in groups if "PixelValueTransformationSequence" in group
    ]
    slopes, intercepts = (
        [value for each in (dataset, *inner) if (value := each.get(name)) is not None]
        for name in ("RescaleSlope", "RescaleIntercept")
    )
    return float(slopes[-1] if slopes else 1), float(intercepts[-1] if intercepts else 0)


def _decode(dataset: Any) -> np.ndarray:
    """Return the stored values of the frames, [N, h, w, ...]; their size must be as checked for the memory."""
    size, fragments = (dataset.Columns, dataset.Rows), []
    if dataset.file_meta.TransferSyntaxUID.is_compressed:
        fragments = [*_fragments(dataset.PixelData)][1:]  # the first has the offsets of the frames
        for frame in (b"".join(fragments), *fragments):
            found = size_of(frame)
            if found and found[:2] != size:
                raise ImageError(f"DICOM, its header has the size {size}, but a compressed frame {found[:2]}")
    try:
        pixels = dataset.pixel_array
        return pixels if int(dataset.get("NumberOfFrames") or 1) > 1 else pixels[np.newaxis]
    except (RuntimeError, NotImplementedError, AttributeError) as error:  # no decoder, or pydicom 2 with a newer Pillow
        if not fragments:
            raise
        frames: list[bytes] = []
        for part in fragments:
            if part.startswith((JPEG, JPEG_2000)) or not frames:
                frames.append(part)
            else:
                frames[-1] += part
        found = size_of(frames[0])
        is_plain = BANDS[dataset.PhotometricInterpretation] == 1 or (
            dataset.PhotometricInterpretation not in YBR and found and found.kind in (0, LOSSLESS_JPEG, JPEG_LS)
        )
        if not found or not is_plain:  # JPEG would need a guess of its colors
            is_missing = "dependencies" in f"{error}"  # of pydicom's plugins
            reason = ", which needs a decoder: pip install 'pylibjpeg[all]'" if is_missing else ": cannot be decoded"
            raise ImageError(f"DICOM, {dataset.file_meta.TransferSyntaxUID.name}{reason}") from None
        jpeg = imagecodecs.jpegls_decode if found.kind == JPEG_LS else imagecodecs.jpeg_decode
        decode = jpeg if found.kind else imagecodecs.jpeg2k_decode
        pixels = np.stack([decode(frame) for frame in frames]).astype(f"u{dataset.BitsAllocated // 8}")
        return pixels.view(f"i{pixels.itemsize}") if dataset.get("PixelRepresentation") else pixels


def _fragments(pixels: bytes) -> Iterator[bytes]:
    """Yield the fragments of compressed frames (DICOM PS3.5, annex A.4); each frame begins with a fragment."""
    position = 0
    while pixels[position : position + 4] == ITEM:
        start, length = position + 8, int.from_bytes(pixels[position + 4 : position + 8], "little")
        yield pixels[start : start + length]
        position = start + length


def write_copy(
    path: str | os.PathLike[str],
    original: str | os.PathLike[str],
    values: np.ndarray,
    value_range: ValueRange | None,
    description: str,
    network: str,
) -> None:
    """Write a copy of a DICOM file with other pixels, [h, w, 1], as a derived image of a new series.

    Values are of the types of `value_type`: float32 is written by a slope. `network` is a text that no other network
    has.
    """
    from pydicom.dataset import Dataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    description = printable(description).encode("ascii", "backslashreplace").decode()  # fits every character set
    with open(original, "rb") as file:
        dataset = _read_dataset(file)
    if any(name in dataset for name in FUNCTIONAL_GROUPS):
        raise ImageError("an enhanced DICOM file, whose copy would be wrong: expected --format tiff or png")
    for name in ("SOPClassUID", "SOPInstanceUID"):
        if not dataset.get(name):
            raise ImageError(f"no {name}: expected a DICOM file with one, or --format tiff or png")
    source = Dataset()
    source.ReferencedSOPClassUID, source.ReferencedSOPInstanceUID = dataset.SOPClassUID, dataset.SOPInstanceUID
    if dataset.file_meta.TransferSyntaxUID.is_compressed:
        dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        del dataset.PixelData
    for name in STALE:
        if name in dataset:
            delattr(dataset, name)
    for group in OVERLAY_GROUPS:
        for element in dataset.group_dataset(group):
            del dataset[element.tag]
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    # Translations of one series by one network stay together.
    dataset.SeriesInstanceUID = generate_uid(entropy_srcs=[str(dataset.get("SeriesInstanceUID")), network])
    dataset.ImageType = ["DERIVED", "SECONDARY", *list(dataset.get("ImageType") or ())[2:]]
    dataset.DerivationDescription, dataset.SourceImageSequence = description[:DESCRIPTION_LENGTH], [source]
    _set_pixels(dataset, values, value_range or FULL_RANGE)
    _save(dataset, path)


def _save(dataset: Any, path: str | os.PathLike[str]) -> None:
    """Write a dataset; raise `ImageError` with the tag that cannot be written."""
    for _ in dataset.iterall():  # decodes the tags, some of which could not be written otherwise
        pass
    try:
        dataset.save_as(path)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        tag = re.search(r"\(\w{4}, ?\w{4}\)", f"{error}")
        what = f"the tag {tag[0]}" if tag else "a tag"
        raise ImageError(f"DICOM, {what} cannot be written: expected --format tiff or png") from error


def _set_pixels(dataset: Any, values: np.ndarray, value_range: ValueRange) -> None:
    low, high = value_range
    stored, slope, intercept = values, 1.0, 0.0
    if values.dtype.kind == "f":
        lowest, highest = min(low, float(values.min())), max(high, float(values.max()))  # also outside of a mask
        stored, slope, intercept = to_levels(values, (lowest, highest)), (highest - lowest) / HIGHEST, lowest
    before, after = (dataset.Rows, dataset.Columns), stored.shape[:2]
    if before[0] * after[1] != before[1] * after[0] and "PixelAspectRatio" in dataset:
        del dataset.PixelAspectRatio
    for name in SPACINGS if before != after else ():
        if spacing := dataset.get(name):
            setattr(dataset, name, [f"{mm * old / new:.10g}" for mm, old, new in zip(spacing, before, after)])
    dataset.Rows, dataset.Columns = after
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 16, 15
    dataset.PixelRepresentation = int(stored.dtype == np.int16)
    dataset.RescaleSlope, dataset.RescaleIntercept = f"{slope:.10g}", f"{intercept:.10g}"
    dataset.RescaleType = "US"  # unspecified: a CT image without a type has Hounsfield units
    dataset.WindowCenter, dataset.WindowWidth = f"{(low + high) / 2:.10g}", f"{high - low:.10g}"
    order = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
    dataset.PixelData = stored.astype(f"{order}{stored.dtype.kind}2").tobytes()
    dataset["PixelData"].VR = "OW"
