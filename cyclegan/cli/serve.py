"""Serve a run on this machine: `cyclegan-serve runs/horse2zebra`, then open http://127.0.0.1:8000 in a browser.

`POST /translate` takes the content of an image file and returns the content of the file that cyclegan-translate would
write: `curl --data-binary @horse.jpg 'http://127.0.0.1:8000/translate?direction=x2y' -o zebra.jpg`.
"""
# Without postponed annotations: FastAPI evaluates those of the functions in `make_app`.

import argparse
import asyncio
import functools
import io
import logging
import mimetypes
import os
import pathlib
import socket
import tempfile
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from cyclegan import terminal
from cyclegan.config.command_line import ArgumentParser, count
from cyclegan.errors import MissingPackageError, UserError

if TYPE_CHECKING:
    from cyclegan.inference.model import Model

logger = logging.getLogger("cyclegan.serve")

UPLOAD_SECONDS = 60.0  # for the content of a file
CONNECTIONS = 200  # further ones are refused


class Refused(Exception):
    """A request that can't be answered: an HTTP status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Translator:
    """Translate the content of files, one at a time.

    Args:
        models: A run on each device, see `load_on_devices`.
        max_pixels: Largest number of pixels of an image.
    """

    def __init__(self, models: "list[Model]", max_pixels: int) -> None:
        self.models, self._max_pixels, self._lock = models, max_pixels, threading.Lock()

    def translate(self, content: bytes, direction: str, format: Optional[str]) -> tuple[bytes, str]:
        """Return the content and the name of the file that `translate_files.translate` writes.

        Raises:
            Refused: The content is no image, or is too large; or the flags do not fit.
        """
        from cyclegan.images import formats
        from cyclegan.inference.translate_files import translate

        name = f"image{formats.FORMATS[self._inspect(content, direction)].endings[0]}"
        with tempfile.TemporaryDirectory() as folder, self._lock:
            source, target = pathlib.Path(folder, name), pathlib.Path(folder, "translation")
            source.write_bytes(content)
            try:
                report = translate(self.models, source, target, direction=direction, format=format)  # type: ignore[arg-type]
                if report.failed:
                    raise UserError(report.failed[0])
            except UserError as error:
                raise Refused(400, str(error).replace(f"{folder}{os.sep}", "")) from None
            (written,) = target.iterdir()
            return written.read_bytes(), written.name

    def _inspect(self, content: bytes, direction: str) -> str:
        """Return the format of an image, by its header; raise `Refused` if it is none, or too large."""
        from cyclegan.images import formats
        from cyclegan.images.image import ImageError

        model, images = self.models[0], 1
        if direction not in model.generators:
            raise Refused(400, f"direction {direction}: expected {' or '.join(model.generators)}")
        try:
            image = formats.open_image(io.BytesIO(content))
            header = image.header
            if model.config.data.stacks == "all" or header.format == "nifti":
                with formats.explain(header.format, "pages"):
                    images = image.count(model.channels(direction)[0])
        except (ImageError, UserError) as error:
            raise Refused(400, f"the content of the request is {error}; expected an image file") from None
        if header.format == "film":
            raise Refused(400, "the content of the request is a film; expected an image")
        if images * header.height * header.width > self._max_pixels:
            raise Refused(
                413,
                f"{images} x {header.width} x {header.height} pixels; expected at most {self._max_pixels / 1e6:g}"
                " million",
            )
        return header.format


def make_app(translator: Translator, max_bytes: int, at_once: int) -> Any:
    """Return the application; `max_bytes` limits a file, and `at_once` the requests that are being answered."""
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect

    model, files = translator.models[0], _page(translator.models[0])
    app, slots = FastAPI(docs_url=None, redoc_url=None), asyncio.BoundedSemaphore(at_once)

    @app.post("/translate")
    async def translate(request: Request, direction: str = "x2y", format: Optional[str] = None) -> Response:
        try:
            if slots.locked():
                raise Refused(503, f"{at_once} requests are being answered; try again later")
            async with slots:
                content = await asyncio.wait_for(_read(request, max_bytes), UPLOAD_SECONDS)
                made, name = await run_in_threadpool(translator.translate, content, direction, format)
        except Refused as refused:
            raise HTTPException(refused.status, str(refused)) from None
        except (asyncio.TimeoutError, ClientDisconnect):
            raise HTTPException(408, "the content of the request did not arrive in time") from None
        return Response(made, media_type=mimetypes.guess_type(name)[0] or "application/octet-stream")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {
            "status": "ok",
            "run": str(model.path),
            "checkpoint": model.checkpoint.name,
            "directions": [*model.generators],
        }

    @app.get("/{name:path}")
    async def page(name: str) -> Response:
        name = name or "index.html"
        if name not in files:
            raise HTTPException(404, "expected /, /translate or /health")
        return Response(files[name], media_type=mimetypes.guess_type(name)[0])

    return app


async def _read(request: Any, max_bytes: int) -> bytes:
    """Return the body of a request; raise `Refused` if it is larger."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > max_bytes:
            raise Refused(413, f"the file has more than {max_bytes / 1e6:g} MB; expected a smaller one")
    return bytes(content)


def _page(model: "Model") -> dict[str, bytes]:
    """Return the files of the page by name; none if browsers can't show the images of the run."""
    from cyclegan.export import web_page

    data = model.config.data
    if data.value_range("X") or data.value_range("Y") or not {data.channels_x, data.channels_y} <= {1, 3}:
        return {}
    page = web_page.Page(model.path.resolve().name, max(data.image_shape), model.config.networks.multiple)
    texts = web_page.texts(page, {each: model.channels(each)[0] for each in model.generators}, server="translate")
    kept = {path.name: path.read_bytes() for path in web_page.PAGE_FILES.iterdir() if path.suffix in (".js", ".css")}
    return {**kept, **{name: text.encode() for name, text in texts.items()}}


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = ArgumentParser(description="Serve a run: a page that translates images, and POST /translate.")
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--checkpoint", metavar="NAME", help="one of the run's checkpoints (default: the newest)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s, this machine)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen at; 0: any free one (default: 8000)")
    parser.add_argument("--max_mb", type=count, default=20, help="largest file in MB (default: %(default)s)")
    parser.add_argument(
        "--max_megapixels", type=count, default=50, help="largest image in million pixels (default: %(default)s)"
    )
    parser.add_argument(
        "--at_once", type=count, default=8, help="requests that wait or are translated at a time (default: %(default)s)"
    )
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Serve until a signal stops the program.

    Raises:
        UserError: The run can't be loaded, or the port is taken.
    """
    given = parse(argv)
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingPackageError(f"{error.name} is not installed; expected it: pip install fastapi uvicorn") from None
    try:
        listening = socket.create_server((given.host, given.port))
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--host {given.host} --port {given.port}: {error}; expected a free port of this machine"
        ) from None
    with listening:
        with terminal.start():
            from cyclegan.inference.model import load_on_devices

        translator = Translator(load_on_devices(given.run, given.checkpoint), given.max_megapixels * 10**6)
        app = make_app(translator, given.max_mb * 10**6, given.at_once)
        host, port = listening.getsockname()[:2]
        logger.info("http://%s:%d translates with %s; Ctrl-C ends it", host, port, translator.models[0].checkpoint)
        settings = uvicorn.Config(app, log_level="warning", limit_concurrency=CONNECTIONS, server_header=False)
        uvicorn.Server(settings).run([listening])


program = functools.partial(terminal.run, main)
