"""Films with the package av: frames as images, and copies with other frames and the same sound."""

from __future__ import annotations

import collections
import contextlib
import math
import os
import pathlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Literal

import numpy as np

from cyclegan.errors import MissingPackageError, UserError
from cyclegan.images.image import Bands, Header, ImageError, ImageReader, check_size, explain
from cyclegan.whole_file import open_regular

# The container by the ending of a name.
CONTAINERS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska", ".webm": "webm", ".avi": "avi"}
RAW_PHOTO = b"ftypcrx "  # of Canon
ATOMS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")  # that MP4 and QuickTime files begin with
# Encoders and their options by container, without visible losses.
ENCODERS = {
    "avi": ("mpeg4", {"flags": "+qscale", "global_quality": "236"}),
    "webm": ("libvpx-vp9", {"crf": "20", "row-mt": "1", "cpu-used": "4"}),
}
H264 = ("libx264", {"crf": "16"})  # for the other containers
READER_THREADS = 4  # of each open film
MAX_SKIPPED = 100  # frames that are decoded to get to a later one without a search
KEPT_FRAMES = 16  # of a decoder, about
SCALING = 4 | 0x2000 | 0x40000  # of libswscale: bicubic, full chroma interpolation, accurate rounding
LIMITED, FULL = 1, 2  # ranges of levels: 16 to 235, 0 to 255
BT601, BT709 = 5, 1  # matrices between RGB and YUV, as libswscale numbers them
MATRICES = {1: BT709, 4: 4, 5: BT601, 6: BT601, 7: 7, 9: 9, 10: 9}  # of libswscale, by the number in a film
TAGS = {BT601: 6}  # the number in a film, if it is not the one of libswscale
SD_HEIGHT = 576  # pixels; players expect BT.709 in higher films that do not name their matrix


def container_of(file: BinaryIO) -> str | None:
    """Return av's name of the container of an open film, by its content; `None` for other files."""
    beginning = file.read(12)
    file.seek(0)
    if beginning.startswith(b"\x1aE\xdf\xa3"):
        return "matroska"
    if beginning.endswith(RAW_PHOTO):
        return None
    if beginning.startswith(b"RIFF") and beginning.endswith(b"AVI "):
        return "avi"
    return "mov" if beginning[4:8] in ATOMS else None


def import_av() -> Any:
    """Return the package av; raise `MissingPackageError` without it."""
    try:
        import av
    except ImportError:
        raise MissingPackageError("a film, which needs the package av: pip install av") from None
    return av


def _open(file: BinaryIO, mode: Literal["r", "w"], container: str) -> Any:
    """Return a container of av whose titles need not be UTF-8, as in new versions of av."""
    av = import_av()
    options = {"metadata_errors": "surrogateescape"} if int(av.__version__.split(".")[0]) < 19 else {}
    return av.open(file, mode, format=container, **options)


def open_image(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a film, `None` for other files."""
    return FilmReader(file) if container_of(file) else None


class FilmReader(ImageReader):
    """Read frames of a film, which stays open, so that a frame soon behind the last one is found without a search."""

    def __init__(self, file: BinaryIO) -> None:
        self._film = Film(file, READER_THREADS)
        self._frames = self._film.frames()
        self._index = 0
        first = next(self._frames, None)
        if not first:
            raise ImageError("a damaged film: it ends before its first image")
        self._time: float = first[0]  # of the frame that was decoded last; infinite if it is not known
        self._frame = first[1]
        height, width, bands = self._film.pixels(self._frame).shape
        self.header = Header(height, width, bands, "film")
        self.nbytes = KEPT_FRAMES * height * width * bands

    def count(self, channels: int) -> int:
        """Return the number of frames that the film has at its average rate, by the time of its last frame."""
        film, last = self._film, collections.deque[tuple[int, Any]](maxlen=1)
        self._time = math.inf
        with contextlib.suppress(ImageError):  # a file without an index, such as a recording of a browser
            last.extend(film.frames(start=round(film.start + len(film) * film.step)))
        last = last or collections.deque(film.frames(start=film.start), 1)
        return round((last[0][0] - film.start) / film.step) + 1

    def at(self, index: int) -> ImageReader:
        """Return the reader of a frame."""
        self._index = index
        return self

    def read(self, channels: int) -> Bands:
        """Decode the frame that is shown at the time `index` / rate, which is frame `index` if the rate is constant."""
        step = self._film.step
        wanted = self._film.start + (self._index - 0.5) * step  # or soon after it
        last, self._time = self._time, math.inf  # a search follows an error
        if not last - step < wanted <= last + MAX_SKIPPED * step:
            self._frames = self._film.frames(start=int(wanted))
            last = -math.inf
        while last < wanted and (found := next(self._frames, None)):
            last, self._frame = found
        if last == -math.inf:
            raise ImageError("a damaged film: it cannot be searched for a frame")
        self._time = last
        return Bands(self._film.pixels(self._frame))


class Film:
    """Decode an open film.

    Args:
        file: The film.
        threads: Threads that decode it; 0 for one on each core.

    Attributes:
        container: av's container.
        video: av's first stream of images.
        rate: Frames per second, on average.
        start: Time of the first frame, in units of `video.time_base`.
        step: Time between two frames, on average.

    Raises:
        ImageError: It is not a film, or is damaged, or has no images.
        MissingPackageError: The package av is not installed.
    """

    def __init__(self, file: BinaryIO, threads: int = 0) -> None:
        import_av()
        name = container_of(file)
        if not name:
            raise ImageError("not a film")
        with explain("film", "header"):
            # With a format, because other kinds of files, such as playlists, make av open other files.
            self.container: Any = _open(file, "r", name)
        video = self.container.streams.best("video")
        if not (video and video.codec_context):
            raise ImageError("a film without images, or of a codec that the package av does not know")
        video.thread_type, video.codec_context.thread_count = "AUTO", threads
        self.video = video
        weakref.finalize(self, self.container.close)
        check_size(video.width, video.height)
        self.rate = video.average_rate or video.guessed_rate or 25
        self.start, self.step = video.start_time or 0, 1 / float(self.rate * video.time_base)
        self.size = video.width, video.height  # of all frames, if later ones differ
        self.matrix = MATRICES.get(video.codec_context.colorspace, BT709 if video.height > SD_HEIGHT else BT601)
        is_full = video.codec_context.color_range == FULL or (video.pix_fmt or "").startswith("yuvj")
        self.range = FULL if is_full else LIMITED
        self.quarters = 0  # turns, counterclockwise, that make frames upright; known after the first one

    def __len__(self) -> int:
        """Return the number of frames by the duration and the rate; 0 if the duration is unknown."""
        duration = float((self.video.duration or 0) * self.video.time_base) or (self.container.duration or 0) / 1e6
        return round(duration * float(self.rate))

    def frames(self, sound: Callable[[Any], None] | None = None, start: int | None = None) -> Iterator[tuple[int, Any]]:
        """Yield the frames and their times in units of `video.time_base`.

        Args:
            sound: Function that takes the packets of the sound between the frames.
            start: Time that the first frame should not exceed.
        """
        with explain("film", "data"):
            if start is not None:
                self.container.seek(max(start, self.start), stream=self.video)
            packets = self.container.demux(self.video, *(self.container.streams.audio if sound else ()))
        last = None
        while True:
            with explain("film", f"data after {(last or 0) * float(self.video.time_base):.1f} s"):
                packet = next(packets, None)
                frames = packet.decode() if packet and packet.stream is self.video else []
            if packet is None:
                return
            if sound and packet.stream is not self.video and packet.dts is not None:
                sound(packet)
            for frame in frames:
                # AVI files have times of decoding only, and damaged files any.
                time = frame.dts if self.container.format.name == "avi" else frame.pts
                if last is not None:
                    time = last + max(1, round(self.step)) if time is None else max(last + 1, time)
                last = time or 0
                yield last, frame

    def pixels(self, frame: Any) -> np.ndarray:
        """Return a frame, upright: uint8 [h, w, 3]."""
        self.quarters = round(frame.rotation / 90) % 4
        pixels = frame.to_ndarray(
            format="rgb24",
            width=self.size[0],
            height=self.size[1],
            src_colorspace=self.matrix,
            dst_colorspace=other_matrix(self.matrix),
            src_color_range=self.range,
            dst_color_range=FULL,
            interpolation=SCALING,
        )
        return np.rot90(pixels, self.quarters)


@contextlib.contextmanager
def open_film(path: str | os.PathLike[str]) -> Iterator[Film]:
    """Provide the film of a file; raise the errors of `Film`, and `OSError`."""
    with open_regular(path) as file:
        film = Film(file)
        with film.container:
            yield film


def other_matrix(matrix: int) -> int:
    """Return a matrix to name for RGB pixels: any other one, because av converts only between different matrices."""
    return BT601 if matrix == BT709 else BT709


class FilmWriter:
    """Write a copy of a film with other frames; a context manager.

    Args:
        path: Path to write.
        ending: Ending of the name that the copy will have, one of `CONTAINERS`.
        film: The original.
        strip_metadata: Whether to leave out the title, the date, the place and so on.

    Raises:
        UserError: The copy cannot be encoded.
    """

    def __init__(self, path: pathlib.Path, ending: str, film: Film, strip_metadata: bool = False) -> None:
        av = import_av()
        self._film, self._ending, self._av = film, ending, av
        self._file = path.open("wb")  # because av takes some names for addresses
        self._copy: Any = _open(self._file, "w", CONTAINERS[ending])
        if not strip_metadata:
            self._copy.metadata.update(film.container.metadata)
        self._video: Any = None
        self._streams: dict[int, Any] = {}  # of sound, by the index of the original's stream
        self._sound: collections.deque[Any] = collections.deque()
        self.frames = 0  # that were written

    def __enter__(self) -> FilmWriter:
        return self

    def __exit__(self, kind: type | None, *exception: object) -> None:
        try:
            if kind is None:
                self._write(None)
        finally:
            with self._file, contextlib.suppress(*([self._av.FFmpegError, OSError] if kind else [])):
                self._copy.close()

    def add_sound(self, packet: Any) -> None:
        """Write a packet of the sound of the original after the next frame."""
        self._sound.append(packet)

    def write(self, pixels: np.ndarray, time: int) -> None:
        """Write a frame at a time in units of the time base of the original.

        H.264 has even sides only: of an odd number of rows or columns, the last one is repeated.

        Args:
            pixels: uint8 [h, w, 3], in the size of the first frame.
            time: See `Film.frames`.
        """
        height, width = pixels.shape[:2]
        if CONTAINERS[self._ending] not in ENCODERS:
            pixels = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if self._video is None:
            self._add_streams(*pixels.shape[:2])
        frame: Any = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
        frame = frame.reformat(
            format="yuv420p",
            src_colorspace=other_matrix(self._film.matrix),
            dst_colorspace=self._film.matrix,
            src_color_range=FULL,
            dst_color_range=self._film.range,
            interpolation=SCALING,
        )
        frame.pts, frame.time_base = time, self._film.video.time_base
        self._write(frame)
        self.frames += 1

    def _write(self, frame: Any) -> None:
        """Write a frame, `None` at the end, and the sound before it."""
        if self._video is None:
            raise ImageError("a damaged film: it ends before its first image")
        try:
            self._copy.mux(self._video.encode(frame))
            while self._sound:
                packet = self._sound.popleft()
                packet.stream = self._streams[packet.stream.index]
                self._copy.mux(packet)
        except self._av.FFmpegError as error:
            raise UserError(f"it cannot be written as a {self._ending} file: expected .mkv") from error

    def _add_streams(self, height: int, width: int) -> None:
        original, container = self._film.video, CONTAINERS[self._ending]
        if container == "avi" != self._film.container.format.name:
            raise UserError("AVI files have one rate instead of times of frames: expected .mp4 or .mkv")
        encoder, options = ENCODERS.get(container, H264)
        try:
            video = self._copy.add_stream(encoder, rate=self._film.rate, options=options)
        except ValueError as error:
            raise UserError(f"the package av has no encoder {encoder}: expected the package of PyPI") from error
        self._video = video
        video.width, video.height, video.pix_fmt = width, height, "yuv420p"
        context, source = video.codec_context, original.codec_context
        context.time_base = original.time_base
        if aspect := original.sample_aspect_ratio:
            context.sample_aspect_ratio = 1 / aspect if self._film.quarters % 2 else aspect
        context.colorspace, context.color_range = TAGS.get(self._film.matrix, self._film.matrix), self._film.range
        context.color_primaries, context.color_trc = source.color_primaries, source.color_trc
        for stream in self._film.container.streams.audio:
            try:
                self._streams[stream.index] = self._copy.add_stream_from_template(stream)
            except ValueError as error:
                sound = stream.codec_context.name
                raise UserError(
                    f"the sound of this film ({sound}) does not fit into {self._ending} files: expected .mkv"
                ) from error
            self._streams[stream.index].metadata.update(stream.metadata)  # the language
