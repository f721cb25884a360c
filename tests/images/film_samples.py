"""Films for the tests; `pytest.importorskip("av")` comes before their use."""

import fractions

import numpy as np

from cyclegan.images.film_format import SCALING, open_film

RATE = 25  # frames per second
SOUND_RATE = 48000  # samples per second
CODECS = {".mp4": "libx264", ".mkv": "libx264", ".mov": "libx264", ".avi": "mpeg4", ".webm": "libvpx-vp9"}
SOUNDS = {".webm": "libopus", ".avi": "pcm_s16le"}  # others AAC
COLORS = [(200, 30, 40), (30, 180, 60), (40, 60, 210), (128, 128, 128)]  # of the quarters of a frame


def quarters(number, height=32, width=32):
    """Return a frame of four colors with its number in gray: uint8 [h, w, 3]."""
    pixels = np.full((height, width, 3), 8 * (number % 32), np.uint8)
    for color, (y, x) in zip(COLORS, np.ndindex(2, 2)):
        pixels[8 * y : 8 * y + 8, 8 * x : 8 * x + 8] = color
    return pixels


def number_of(pixels):
    """Return the number of a frame of `quarters`."""
    return round(pixels[-8:, -8:].mean() / 8)


def write_film(path, frames=10, draw=quarters, times=None, sound=True, matrix=None, full=None, pixels="yuv420p"):
    """Write a film with a tone.

    Args:
        path: Path of the film; the ending chooses the container.
        frames: Number of frames.
        draw: Function that returns the frame of a number.
        times: Times of the frames in milliseconds; by default those of `RATE`.
        sound: Whether the film has a tone.
        matrix: Number of the color matrix that the film names, 1 for BT.709, 5 for BT.601; by default none.
        full: Whether the levels have the full range; by default, the film does not say that they have not.
        pixels: Format of the pixels.
    """
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    colors = {
        "src_color_range": 2,
        "dst_color_range": 2 if full else 1,
        "dst_colorspace": matrix or 5,
        "interpolation": SCALING,
    }
    with av.open(str(path), "w") as film:
        video = film.add_stream(CODECS[path.suffix], rate=RATE, options={"g": "4", "crf": "4", "b": "0"})
        video.height, video.width = draw(0).shape[:2]
        video.pix_fmt = pixels
        unit = fractions.Fraction(1, 1000 if times else RATE)
        video.codec_context.time_base = unit
        if matrix:
            video.codec_context.colorspace, video.codec_context.color_range = matrix, 2 if full else 1
        tone = film.add_stream(SOUNDS.get(path.suffix, "aac"), rate=SOUND_RATE) if sound else None
        if tone:
            tone.layout = "mono"
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(draw(number), "rgb24")
            frame = frame.reformat(format=pixels, src_colorspace=1 if matrix != 1 else 5, **colors)
            frame.pts, frame.time_base = times[number] if times else number, unit
            film.mux(video.encode(frame))
        film.mux(video.encode())
        if tone:
            count = SOUND_RATE * frames // RATE
            wave = np.sin(np.arange(count) * (440 * 2 * np.pi / SOUND_RATE)).astype(np.float32)
            samples = av.AudioFrame.from_ndarray(wave[None], "fltp", "mono")
            samples.sample_rate, samples.pts, samples.time_base = SOUND_RATE, 0, fractions.Fraction(1, SOUND_RATE)
            film.mux([*tone.encode(samples), *tone.encode()])


def read_film(path):
    """Return the times of the frames in milliseconds, the frames, and the times and bytes of the packets of sound."""
    import av

    with open_film(path) as film:
        frames = [(1000 * float(time * film.video.time_base), film.pixels(frame)) for time, frame in film.frames()]
    with av.open(str(path)) as film:
        packets = film.demux(audio=0) if film.streams.audio else ()
        sound = [(1000 * float(part.pts * part.time_base), bytes(part)) for part in packets if part.dts is not None]
    times, pixels = zip(*frames)
    return times, np.stack(pixels), sound
