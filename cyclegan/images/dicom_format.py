"""DICOM with pydicom: reading of rescaled values, such as Hounsfield units, and writing of copies with other pixels."""

from __future__ import annotations

import logging
import os
import struct
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from cyclegan.config.data import ValueRange
from cyclegan.errors import MissingPackageError, printable
from cyclegan.images.image import DecodedImage, Header, check_size, convert_bands
from cyclegan.images.value_range import FULL_RANGE, to_values, value_type

MAGIC, MAGIC_OFFSET = b"DICM", 128
DEFLATED = b"1.2.840.10008.1.2.1.99"  # a transfer syntax that unpacks to any size
META_BYTES = 2048  # at the beginning of a file, which name its transfer syntax
ITEM, JPEG, JPEG_2000 = b"\xfe\xff\x00\xe0", b"\xff\xd8", b"\xff\x4f\xff\x51"  # of compressed pixels
# Second bytes of the markers that begin a frame header in JPEG and JPEG-LS.
FRAME_HEADERS = {bytes([kind]) for kind in (*range(0xC0, 0xD0), 0xF7) if kind not in (0xC4, 0xC8, 0xCC)}
SLACK = 100_000  # bytes of a compressed file besides twice those of its pixels at most; more might decode to any size
PHOTOMETRIC = ("MONOCHROME1", "MONOCHROME2", "RGB")
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


class DicomReader:
    """Read the first frame of a DICOM file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        dataset = _read_dataset(file, stop_before_pixels=True)
        self._frames = int(dataset.get("NumberOfFrames") or 1)
        start, length = file.tell(), file.seek(0, os.SEEK_END)
        missing = [f"no {name}" for name in ("Rows", "Columns", "BitsAllocated", "BitsStored") if not dataset.get(name)]
        photometric, bands = dataset.get("PhotometricInterpretation"), dataset.get("SamplesPerPixel", 1)
        if missing or photometric not in PHOTOMETRIC or bands != (3 if photometric == "RGB" else 1):
            what = (*missing, f"photometric interpretation {photometric} of {bands} samples")[0]
            raise ValueError(f"{what}: expected a DICOM image, {', '.join(PHOTOMETRIC)}")
        if "ModalityLUTSequence" in dataset or "SharedFunctionalGroupsSequence" in dataset:
            raise ValueError("a lookup table, or enhanced (multi-frame) DICOM: expected one image, slope and intercept")
        highest, bits = dataset.get("HighBit"), dataset.BitsStored
        if highest is not None and highest != bits - 1:
            raise ValueError(f"HighBit {highest} with {bits} BitsStored: expected {bits - 1}")
        height, width = dataset.Rows, dataset.Columns
        values = height * width * bands
        stored = values * self._frames * dataset.BitsAllocated // 8
        check_size(width, height, 2 * stored + 16 * values)
        is_compressed = dataset.file_meta.TransferSyntaxUID.is_compressed
        if is_compressed and length - start > 2 * stored + SLACK:
            raise ValueError(f"{length - start} bytes of compressed pixels for {stored} bytes: expected fewer")
        # Compressed images count as damaged, so that they are decoded before training: a decoder may be missing.
        complete = not is_compressed and length - start >= stored
        self.header = Header(height, width, bands, "dicom", deep=True, complete=complete, other_values="DICOM")

    def has_more_frames(self) -> bool:
        """Return whether the file has frames besides the first one."""
        return self._frames > 1

    def read(self, channels: int) -> DecodedImage:
        """Decode the first frame. MONOCHROME1, in which low values are white, is inverted."""
        dataset = _read_dataset(self._file)
        stored = _decode(dataset)
        stored = stored[0] if self._frames > 1 else stored
        unused = dataset.BitsAllocated - dataset.BitsStored
        stored = stored << unused >> unused  # old files have overlays there
        dtype = np.float32 if dataset.BitsStored <= 16 else np.float64
        values = stored.reshape(dataset.Rows, dataset.Columns, -1).astype(dtype)
        if dataset.PhotometricInterpretation == "MONOCHROME1":
            values = (-1 if dataset.get("PixelRepresentation") else 2**dataset.BitsStored - 1) - values
        slope, intercept = dataset.get("RescaleSlope"), dataset.get("RescaleIntercept")
        slope, intercept = 1.0 if slope is None else float(slope), 0.0 if intercept is None else float(intercept)
        pixels = convert_bands(values * slope + intercept, channels, has_opacity=False)[0]
        return DecodedImage(pixels, fractional=not (slope.is_integer() and intercept.is_integer()))


def open_image(file: BinaryIO) -> DicomReader | None:
    """Return the reader of a DICOM file, `None` for other files."""
    return DicomReader(file) if is_dicom(file) else None


def is_dicom(file: BinaryIO) -> bool:
    """Return whether a file is DICOM."""
    return file.read(MAGIC_OFFSET + len(MAGIC))[MAGIC_OFFSET:] == MAGIC


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
        raise ValueError("deflated DICOM: expected another transfer syntax")
    file.seek(0)
    return pydicom.dcmread(file, **options)


def _decode(dataset: Any) -> np.ndarray:
    """Return the stored values of all frames, whose sizes must be the one by which the memory was checked."""
    size = dataset.Columns, dataset.Rows
    if dataset.file_meta.TransferSyntaxUID.is_compressed:
        fragments = [*_fragments(dataset.PixelData)][1:]  # the first has the offsets of the frames
        for frame in (b"".join(fragments), *fragments):
            if _codestream_size(frame) not in (None, size):
                raise ValueError(f"its header has the size {size}, but a compressed frame {_codestream_size(frame)}")
    try:
        return dataset.pixel_array
    except (RuntimeError, NotImplementedError) as error:
        if not any(text in str(error) for text in ("missing", "not support")):  # the pixels are damaged
            raise
        name = dataset.file_meta.TransferSyntaxUID.name
        raise MissingPackageError(
            f'DICOM of the transfer syntax "{name}" needs the package pylibjpeg: pip install "pylibjpeg[all]"'
        ) from error


def _fragments(pixels: bytes) -> Iterator[bytes]:
    """Yield the fragments of compressed frames (DICOM PS3.5, annex A.4); each frame begins with a fragment."""
    position = 0
    while pixels[position : position + 4] == ITEM:
        start, length = position + 8, int.from_bytes(pixels[position + 4 : position + 8], "little")
        yield pixels[start : start + length]
        position = start + length


def _codestream_size(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) of a JPEG, JPEG-LS or JPEG 2000 image, (0, 0) if it lacks them, `None` for other bytes."""
    if data[:4] == JPEG_2000:  # ITU-T T.800, A.5.1
        right, bottom, left, top = struct.unpack_from(">4I", data.ljust(24, b"\0"), 8)
        return right - left, bottom - top
    if data[:2] != JPEG:
        return None
    position = 2
    while data[position : position + 1] == b"\xff":  # a marker segment: ITU-T T.81, B.1.1
        kind = data[position + 1 : position + 2]
        if kind in FRAME_HEADERS:
            height, width = struct.unpack_from(">HH", data.ljust(position + 9, b"\0"), position + 5)
            return width, height
        position += 1 if kind == b"\xff" else 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return 0, 0


def write_copy(
    path: str | os.PathLike[str],
    original: str | os.PathLike[str],
    levels: np.ndarray,
    value_range: ValueRange | None,
    fractional: bool,
    description: str,
    network: str,
) -> None:
    """Write a copy of a DICOM file with other pixels, uint16 [h, w, 1], as a derived image of a new series.

    With `fractional`, values between whole numbers are kept, by a slope. `network` is a text that no other network has.
    """
    from pydicom.dataset import Dataset
    from pydicom.uid import generate_uid

    description = printable(description).encode("ascii", "backslashreplace").decode()  # fits every character set
    with open(original, "rb") as file:
        dataset = _read_dataset(file)
    for name in ("SOPClassUID", "SOPInstanceUID"):
        if not dataset.get(name):
            raise ValueError(f"no {name}: expected a DICOM file with one, or --format tiff or png")
    source = Dataset()
    source.ReferencedSOPClassUID, source.ReferencedSOPInstanceUID = dataset.SOPClassUID, dataset.SOPInstanceUID
    if dataset.file_meta.TransferSyntaxUID.is_compressed:
        dataset.decompress()
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
    _set_pixels(dataset, levels, value_range or FULL_RANGE, fractional)
    dataset.save_as(path)


def _set_pixels(dataset: Any, levels: np.ndarray, value_range: ValueRange, fractional: bool) -> None:
    low, high = value_range
    dtype, slope, intercept = value_type(value_range, fractional), 1.0, 0.0
    if dtype == np.float32:
        stored, slope, intercept = levels, (high - low) / np.iinfo(np.uint16).max, low
    else:
        stored = to_values(levels, value_range, np.int16 if dtype == np.int16 else np.uint16)
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
