"""Reading and writing of DICOM files."""

import io
import struct
import sys

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from cyclegan.data import loading
from cyclegan.errors import UserError
from cyclegan.images import reader
from cyclegan.images.dicom_format import ITEM, write_copy
from cyclegan.images.reader import Slice
from cyclegan.images.value_range import FULL_RANGE, to_values, value_type
from tests.images.dicom_samples import compressed, dicom, in_items, twelve_bits

pydicom = pytest.importorskip("pydicom")
RLE = "1.2.840.10008.1.2.5"
BLOATED = ITEM + bytes(4) + ITEM + b"\x40\x42\x0f\0" + bytes(10**6)
BIG_ENDIAN, DEFLATED = "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99"


def values(content, channels=1):
    """Return the values of an image, and check that its header names its size."""
    image = reader.decode_values(content, channels).pixels
    assert reader.check(content, channels, has_range=True)[:4] == (len(content), *image.shape[:2], True)
    return image[..., 0] if channels == 1 else image


def test_a_preamble_may_look_like_a_tiff(tmp_path):
    """Scanners write files that are both; without pages, these are no TIFF files."""
    path, content = tmp_path / "a.dcm", dicom(twelve_bits())
    path.write_bytes(b"II*\0".ljust(128, b"\0") + content[128:])
    assert reader.count(path, 1) == reader.check(path, 1, has_range=True, by_rows=True).images == 1
    with reader.open_rows(path, 1, any_type=True) as rows:
        assert rows is None


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.1", BIG_ENDIAN])
def test_rescaled_values_of_12_and_16_bits(syntax):
    stored = twelve_bits()
    assert (values(dicom(stored, syntax=syntax, RescaleSlope=2, RescaleIntercept=-1024)) == 2.0 * stored - 1024).all()
    assert (values(compressed(dicom(stored, RescaleIntercept=-1024))) == stored - 1024.0).all()
    signed = (stored.astype(np.int16) - 2048) * 16
    assert (values(dicom(signed, bits=16, RescaleIntercept="")) == signed).all()


def encoded(kind, width, height):
    """Return a gray JPEG or JPEG 2000 image, or the beginning of a JPEG-LS image."""
    if kind == "JPEG-LS":
        return b"\xff\xd8\xff\xf7\0\x0b\x08" + struct.pack(">HH", height, width) + b"\1\1\x11\0"
    file = io.BytesIO()
    Image.new("L", (width, height), 99).save(file, kind, no_jp2=True)
    return file.getvalue()


@pytest.mark.parametrize("kind, syntax", [("JPEG", "50"), ("JPEG2000", "90"), ("JPEG-LS", "80")])
@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_compressed_frame_has_the_size_of_the_header(kind, syntax, pieces):
    """Otherwise a small file could take any amount of memory."""
    for width, height in ((12, 10), (600, 500)):
        data = encoded(kind, width, height)
        fragments = {1: [data], 2: [data[:1], data[1:]], 3: [data, b"\0\0"]}[pieces]
        items = [b"", *(each + b"\0" * (len(each) % 2) if each is fragments[-1] else each for each in fragments)]
        pixels = b"".join(ITEM + struct.pack("<I", len(item)) + item for item in items)
        content = dicom(np.zeros((10, 12), np.uint8), 8, f"1.2.840.10008.1.2.4.{syntax}", PixelData=pixels)
        if width == 600:
            with pytest.raises(ValueError, match=r"size \(12, 10\), but a compressed frame \(600, 500\)"):
                reader.check(content, 1, has_range=True)
        elif kind == "JPEG" and pieces == 1:
            assert (values(content) == 99).all()


def test_slopes_between_whole_numbers_mark_the_values():
    stored = twelve_bits()
    image = reader.decode_values(dicom(stored, RescaleSlope="0.125", RescaleIntercept="0"), 1)
    assert image.fractional and (image.pixels[..., 0] == stored / 8).all()
    assert not reader.decode_values(dicom(stored), 1).fractional


def test_monochrome1_is_inverted():
    stored = twelve_bits()
    inverted = dicom(stored, PhotometricInterpretation="MONOCHROME1", RescaleIntercept=-10)
    assert (values(inverted) == 4095.0 - stored - 10).all()
    signed = stored.astype(np.int16) - 2048
    assert (values(dicom(signed, PhotometricInterpretation="MONOCHROME1")) == -1.0 - signed).all()


def test_bits_above_the_stored_ones_are_ignored():
    stored = twelve_bits()
    assert (values(dicom(stored | 0xA000)) == stored).all()
    signed = (stored.astype(np.int16) - 2048) & 0x0FFF  # the sign bit is bit 11
    assert (values(dicom(signed.astype(np.int16))) == stored - 2048.0).all()


def test_channels_and_frames(tmp_path):
    stored = twelve_bits()
    assert (values(dicom(stored), 3) == stored[..., None]).all()
    (tmp_path / "a.dcm").write_bytes(dicom(np.stack([stored, stored // 2])))
    assert (values((tmp_path / "a.dcm").read_bytes()) == stored).all()
    frames = [reader.decode_values(Slice(str(tmp_path / "a.dcm"), i), 1).pixels[..., 0] for i in range(2)]
    assert (np.stack(frames) == [stored, stored // 2]).all() and reader.count(tmp_path / "a.dcm") == 2


def test_a_range_is_needed_and_applied():
    content = dicom(twelve_bits(), RescaleIntercept=-1024)
    for function in (reader.check, reader.decode):
        with pytest.raises(ValueError, match="DICOM: .* others need --value_range_x or --value_range_y"):
            function(content, 1)
    levels = reader.decode(content, 1, np.uint16, (-1024, 3071))[..., 0]
    np.testing.assert_array_equal(levels, np.rint(twelve_bits() / 4095 * 65535))


@pytest.mark.parametrize(
    "content, text",
    [
        (lambda: dicom(twelve_bits(), PhotometricInterpretation="HSV"), "interpretation HSV of 1 samples"),
        (lambda: dicom(twelve_bits(), Rows=60000, Columns=60000), "60000 x 60000 pixels: expected at most 180 million"),
        (lambda: dicom(twelve_bits(), Rows=None), "no Rows: expected an image"),
        (
            lambda: dicom(twelve_bits(), Rows=None, Columns=None, SOPClassUID="1.2.840.10008.5.1.4.1.1.88.11"),
            r"^DICOM without an image .its kind: Basic Text SR Storage.$",
        ),
        (lambda: dicom(twelve_bits())[: -12 - 240], "no PixelData: expected an image"),
        (lambda: dicom(twelve_bits() * 16, HighBit=15), "HighBit 15 with 12 BitsStored: expected 11"),
        (lambda: dicom(twelve_bits())[:-20], "a damaged DICOM file: truncated"),
        (
            lambda: dicom(twelve_bits(), syntax=RLE, PixelData=BLOATED),
            "compressed pixels for 240 bytes: expected fewer",
        ),
        (lambda: dicom(twelve_bits()).replace(b"1.2.840.10008.1.2.1\0", DEFLATED.encode()), "deflated DICOM"),
    ],
    ids=["colors", "huge", "no rows", "a text", "no pixels", "high bits", "cut", "bloated", "deflated"],
)
def test_other_files_are_refused(content, text):
    with pytest.raises(Exception, match=text):
        reader.check(content(), 1, has_range=True)


def test_colors_need_no_range():
    color = np.random.default_rng(0).integers(0, 256, (10, 12, 3)).astype(np.uint8)
    content = dicom(color, bits=8)
    assert reader.check(content, 3)[1:4] == (10, 12, False) and (reader.decode(content, 3) == color).all()
    assert np.abs(reader.decode(content, 1)[..., 0] - color @ [0.299, 0.587, 0.114]).max() < 0.51
    ybr = np.asarray(Image.fromarray(color).convert("YCbCr"))
    for name in ("YBR_FULL", "YBR_RCT"):
        found = reader.decode(dicom(ybr if name == "YBR_FULL" else color, 8, PhotometricInterpretation=name), 3)
        assert np.abs(found.astype(int) - color).max() <= 3, name
    table = np.arange(256) * 256
    names = [f"{name}PaletteColorLookupTable" for name in ("Red", "Green", "Blue")]
    tables = {f"{name}Descriptor": [256, 0, 16] for name in names}
    for number, name in enumerate(names, 1):
        tables[f"{name}Data"] = (table * number % 65536).astype("<u2").tobytes()
    palette = dicom(color[..., 0], 8, PhotometricInterpretation="PALETTE COLOR", **tables)
    expected = table[color[..., :1]] * [1, 2, 3] % 65536
    assert (reader.decode(palette, 3, np.uint16) == expected).all()


def test_enhanced_frames_have_a_slope_of_their_own(tmp_path):
    stored = np.stack([twelve_bits(), twelve_bits(seed=1)])
    groups = [pydicom.Dataset(), pydicom.Dataset()]
    for group, slope, intercept in zip(groups, (2, 3), (-1024, -24)):
        inner = pydicom.Dataset()
        inner.RescaleSlope, inner.RescaleIntercept = slope, intercept
        group.PixelValueTransformationSequence = [inner]
    path = tmp_path / "a.dcm"
    path.write_bytes(dicom(stored, PerFrameFunctionalGroupsSequence=groups))
    assert (values(path.read_bytes()) == 2.0 * stored[0] - 1024).all()
    assert (reader.decode_values(Slice(str(path), 1), 1).pixels[..., 0] == 3.0 * stored[1] - 24).all()
    with pytest.raises(ValueError, match="an enhanced DICOM file, whose copy would be wrong: expected --format tiff"):
        write_copy(tmp_path / "b.dcm", path, twelve_bits()[..., None], None, "", "net")


@pytest.mark.parametrize("codec, syntax", [("jpegls", "80"), ("ljpeg", "70"), ("jpeg2k", "90")])
def test_compressions_that_pydicom_leaves_to_other_packages(codec, syntax, monkeypatch):
    def missing_decoder(dataset):
        raise RuntimeError("Unable to decompress because all plugins are missing dependencies:\n\tgdcm")

    monkeypatch.setattr("pydicom.dataset.Dataset.pixel_array", property(missing_decoder))
    options = {"level": 0, "codecformat": "j2k"} if codec == "jpeg2k" else {}
    data = getattr(imagecodecs, f"{codec}_encode")(twelve_bits(), **options)
    frames = in_items(data)
    content = dicom(twelve_bits(), syntax=f"1.2.840.10008.1.2.4.{syntax}", RescaleIntercept=-1024, PixelData=frames)
    assert (values(content) == twelve_bits() - 1024.0).all()
    if codec == "ljpeg":  # lossless, so RGB stays RGB
        color = np.random.default_rng(0).integers(0, 256, (10, 12, 3)).astype(np.uint8)
        data = imagecodecs.jpeg8_encode(color, lossless=True)
        rgb = dicom(color, 8, f"1.2.840.10008.1.2.4.{syntax}", PixelData=in_items(data))
        assert (reader.decode(rgb) == color).all()
        tags = {"PixelData": in_items(data), "PhotometricInterpretation": "YBR_FULL"}
        needed = r"^DICOM, JPEG Lossless.*, which needs a decoder: pip install 'pylibjpeg\[all\]'"
        with pytest.raises(ValueError, match=needed):
            reader.check(dicom(color, 8, f"1.2.840.10008.1.2.4.{syntax}", **tags))
    with pytest.raises(ValueError, match="^a damaged DICOM file: "):
        reader.check(content.replace(frames, bytes(len(frames))), 1, has_range=True)


def test_without_the_package_each_file_is_refused_alone(monkeypatch, tmp_path):
    (tmp_path / "a.dcm").write_bytes(dicom(twelve_bits()))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    Image.new("L", (8, 8)).save(tmp_path / "b.png")
    sources = {"trainA": [str(tmp_path / name) for name in ("a.dcm", "b.png")]}
    text = r"1 of 2 images .*a\.dcm .DICOM files need the package pydicom: pip install pydicom"
    with pytest.raises(UserError, match=text):
        loading.check_files(sources, {"trainA": 1}, ranged=["trainA"])


@pytest.fixture
def copied(tmp_path):
    """Return a function that writes a copy of a DICOM file with other pixels, and reads it."""

    def copy(levels, value_range, fractional=False, name="CycleGAN x2y, run", network="net", compress=False, **tags):
        original = dicom(twelve_bits(), WindowCenter=40, WindowWidth=400, **tags)
        (tmp_path / "in.dcm").write_bytes(compressed(original) if compress else original)
        paths = tmp_path / "out.dcm", tmp_path / "in.dcm"
        value_range = value_range or FULL_RANGE
        values = to_values(levels[..., None], value_range, value_type(value_range, fractional))
        write_copy(*paths, values, value_range, name, network)
        return pydicom.dcmread(tmp_path / "out.dcm")

    return copy


def real_values(dataset):
    """Return the values of a dataset as viewers compute them."""
    return dataset.pixel_array * float(dataset.RescaleSlope) + float(dataset.RescaleIntercept)


@pytest.mark.parametrize(
    "value_range, fractional, stored_type, step",
    [
        ((0, 4095), False, np.uint16, 1),
        ((-1000, 2000), False, np.int16, 1),
        ((-70000, 2000), False, np.uint16, 72000 / 65535),
        ((0, 1), False, np.uint16, 1 / 65535),
        ((0, 4095), True, np.uint16, 4095 / 65535),
        (None, False, np.uint16, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.2"])
def test_values_are_those_of_the_range(copied, syntax, value_range, fractional, stored_type, step):
    levels = np.random.default_rng(1).integers(0, 65536, (7, 9)).astype(np.uint16)
    dataset = copied(levels, value_range, fractional, syntax=syntax)
    low, high = value_range or (0, 65535)
    assert dataset.pixel_array.dtype.newbyteorder("=") == stored_type and dataset.pixel_array.shape == (7, 9)
    assert np.abs(real_values(dataset) - (low + levels / 65535 * (high - low))).max() <= step / 2 + 1e-6 * (high - low)
    assert (dataset.WindowCenter, dataset.WindowWidth) == ((low + high) / 2, high - low)


def test_a_copy_is_a_derived_image_of_the_patient(copied):
    levels = np.zeros((7, 9), np.uint16)
    stale = {"SmallestImagePixelValue": 3, "Units": "BQML", "RealWorldValueMappingSequence": []}
    first = copied(levels, (0, 4095), PhotometricInterpretation="MONOCHROME1", RescaleType="HU", **stale)
    second = copied(levels, (0, 4095), NumberOfFrames=1)
    assert len({"1.2.3.4", first.SOPInstanceUID, second.SOPInstanceUID}) == 3
    assert first.file_meta.MediaStorageSOPInstanceUID == first.SOPInstanceUID
    assert first.SeriesInstanceUID == second.SeriesInstanceUID != "1.2.3"  # one new series
    assert first.RescaleType == "US"  # a CT image without a type has Hounsfield units
    assert first.ImageType == ["DERIVED", "SECONDARY", "AXIAL"] and first.DerivationDescription == "CycleGAN x2y, run"
    assert first.SourceImageSequence[0].ReferencedSOPInstanceUID == "1.2.3.4" and first.PatientName == "Doe^Jane"
    assert first.PhotometricInterpretation == "MONOCHROME2"
    assert not any(name in first for name in stale) and "NumberOfFrames" not in second


def test_the_description_is_ascii_and_each_network_has_its_own_series(copied):
    series = set()
    for name, expected in (("Läufe", "L\\xe4ufe"), ("実験", "\\u5b9f\\u9a13"), ("caf\udce9", "caf\\udce9")):
        dataset = copied(np.zeros((7, 9), np.uint16), None, name=name, network=expected)
        assert dataset.DerivationDescription == expected
        series.add(dataset.SeriesInstanceUID)
    assert len(series) == 3


def test_pixels_of_another_size_fill_the_same_area(copied):
    spacings = {"PixelSpacing": [0.5, 0.7], "ImagerPixelSpacing": [1, 1], "NominalScannedPixelSpacing": None}
    resized = copied(np.zeros((15, 36), np.uint16), (0, 4095), **spacings)  # of 10 x 12 pixels
    assert resized.PixelSpacing == [0.3333333333, 0.2333333333]
    assert resized.ImagerPixelSpacing == [0.6666666667, 0.3333333333] and not resized.NominalScannedPixelSpacing
    same = copied(np.zeros((10, 12), np.uint16), (0, 4095), **spacings)
    assert same.PixelSpacing == [0.5, 0.7]
    shapes = {size: copied(np.zeros(size, np.uint16), None, PixelAspectRatio=[1, 2]) for size in ((20, 24), (20, 20))}
    assert [("PixelAspectRatio" in dataset) for dataset in shapes.values()] == [True, False]


@pytest.mark.parametrize("name", ["SOPClassUID", "SOPInstanceUID"])
def test_an_original_without_identifier_is_refused(tmp_path, name):
    dataset = pydicom.dcmread(io.BytesIO(dicom(twelve_bits())))
    delattr(dataset, name)
    dataset.save_as(tmp_path / "in.dcm")
    with pytest.raises(ValueError, match=f"no {name}: expected"):
        write_copy(tmp_path / "out.dcm", tmp_path / "in.dcm", twelve_bits()[..., None], None, "", "net")


def test_a_copy_of_a_compressed_file_is_uncompressed(copied):
    levels = np.random.default_rng(1).integers(0, 65536, (7, 9)).astype(np.uint16)
    dataset = copied(levels, (0, 65535), compress=True)
    assert not dataset.file_meta.TransferSyntaxUID.is_compressed
    assert (real_values(dataset) == levels).all()
