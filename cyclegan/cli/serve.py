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
from cyclegan.cli import check_run
from cyclegan.config.command_line import ArgumentParser, count
from cyclegan.errors import MissingPackageError, UserError

if TYPE_CHECKING:
    from cyclegan.inference.model import Model

logger = logging.getLogger("cyclegan.serve")

INSTALL = "pip install -c requirements.txt fastapi uvicorn"
UPLOAD_SECONDS = 60.0  # for the content of a file
NO_PAGE = {"translate": (405, "GET /translate: expected POST of an image: curl --data-binary @FILE", {"Allow": "POST"})}
CONNECTIONS = 200  # further ones are refused


class Refused(UserError):
    """A request that can't be answered; `status` is the one of HTTP."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def translate_content(
    models: "list[Model]", content: bytes, direction: str, format: Optional[str], max_pixels: int
) -> tuple[str, bytes]:
    """Return the name and the content of the file that `translate_files.translate` writes for an image file.

    Raises:
        UserError: The content is no image, or the arguments do not fit.
        Refused: The image has more than `max_pixels` pixels.
    """
    from cyclegan.images import formats
    from cyclegan.images.image import ImageError
    from cyclegan.inference.translate_files import translate

    models[0].generator(direction)  # raises an error if there is none
    try:
        image, number = formats.open_image(io.BytesIO(content)), 1
        header = image.header
        if models[0].config.data.stacks == "all" or header.format == "nifti":
            with formats.explain(header.format, "pages"):
                number = image.count(models[0].channels(direction)[0])
    except ImageError as error:
        raise UserError(f"the content of the request is {error}; expected an image file") from None
    if header.format == "film":
        raise UserError("the content of the request is a film; expected an image file")
    if number * header.height * header.width > max_pixels:
        size = f"{number} x {header.width} x {header.height} pixels"
        raise Refused(f"{size}; expected at most {max_pixels / 1e6:g} million", 413)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, f"image{formats.FORMATS[header.format].endings[0]}")
        target = pathlib.Path(folder, "translation")
        source.write_bytes(content)
        try:
            report = translate(models, source, target, direction=direction, format=format)
            if report.failed:
                raise UserError(report.failed[0])
        except UserError as error:
            raise UserError(str(error).replace(f"{folder}{os.sep}", "")) from None
        (written,) = target.iterdir()
        return written.name, written.read_bytes()


def make_app(models: "list[Model]", max_bytes: int, max_pixels: int, at_once: int) -> Any:
    """Return the application, which translates one image at a time with a run, loaded on each device.

    `max_bytes` limits a file, `max_pixels` an image, and `at_once` the requests that wait or are being answered.
    """
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect

    app, files, model = FastAPI(docs_url=None, redoc_url=None), _page(models[0]), models[0]
    slots, lock = asyncio.BoundedSemaphore(at_once), threading.Lock()

    def answer(content: bytes, direction: str, format: Optional[str]) -> Response:
        with lock:
            name, made = translate_content(models, content, direction, format, max_pixels)
        return Response(made, media_type=_kind(name))

    @app.post("/translate")
    async def translate(request: Request, direction: str = "x2y", format: Optional[str] = None) -> Response:
        try:
            _check_request(request)
            if slots.locked():
                raise Refused(f"{at_once} requests are being answered; try again later", 503)
            async with slots:
                content = await asyncio.wait_for(_read(request, max_bytes), UPLOAD_SECONDS)
                return await run_in_threadpool(answer, content, direction, format)
        except UserError as error:
            raise HTTPException(getattr(error, "status", 400), str(error)) from None
        except (asyncio.TimeoutError, ClientDisconnect):
            raise HTTPException(408, "the content of the request did not arrive in time") from None

    @app.get("/health")
    async def health() -> dict[str, Any]:
        names = {"run": str(model.path), "checkpoint": model.checkpoint.name}
        return {"status": "ok", **names, "directions": [*model.generators]}

    @app.get("/{name:path}")
    async def page(name: str) -> Response:
        name = name or "index.html"
        if name not in files:
            raise HTTPException(*NO_PAGE.get(name, (404, "expected /, POST /translate or /health")))
        return Response(files[name], media_type=_kind(name))

    return app


def _kind(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _check_request(request: Any) -> None:
    """Raise `UserError` if a request has unknown parameters, or a form instead of an image."""
    if unknown := sorted(request.query_params.keys() - {"direction", "format"}):
        raise UserError(f"unknown parameters: {', '.join(unknown)}; expected direction or format")
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise UserError("the content of the request is a form; expected an image: curl --data-binary @FILE")


async def _read(request: Any, max_bytes: int) -> bytes:
    """Return the body of a request; raise `Refused` if it is larger."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > max_bytes:
            raise Refused(f"the file has more than {max_bytes / 1e6:g} MB; expected a smaller one", 413)
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
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of the run, or RUN/checkpoints/NAME")
    add("--checkpoint", metavar="NAME", help="one of the run's checkpoints (default: the newest)")
    add("--host", default="127.0.0.1", help="address to listen at (default: %(default)s, this machine)")
    add("--port", type=int, default=8000, help="port to listen at; 0: any free one (default: 8000)")
    add("--max_mb", type=count, default=20, help="largest file in MB (default: %(default)s)")
    add("--max_megapixels", type=count, default=50, help="largest image in million pixels (default: %(default)s)")
    add("--at_once", type=count, default=8, help="requests that wait or are translated at a time (default: 8)")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Serve until a signal stops the program.

    Raises:
        UserError: The run can't be loaded, or the port is taken.
    """
    given = parse(argv)
    check_run(given.run, checkpoint=given.checkpoint)
    try:
        import fastapi  # noqa: F401  for `make_app`
        import uvicorn
    except ImportError as error:
        raise MissingPackageError(f"{error.name} is not installed; expected it: {INSTALL}") from None
    try:
        listening = socket.create_server((given.host, given.port))
    except (OSError, OverflowError) as error:
        address = f"--host {given.host} --port {given.port}"
        raise UserError(f"{address}: {error}; expected a free port of this machine, or --port 0") from None
    with listening:
        with terminal.phase("Starting TensorFlow", if_slow=True), terminal.start():
            from cyclegan.inference.model import load_on_devices

        models = load_on_devices(given.run, given.checkpoint)
        app = make_app(models, given.max_mb * 10**6, given.max_megapixels * 10**6, given.at_once)
        host, port = listening.getsockname()[:2]
        logger.info("http://%s:%d translates with %s; Ctrl-C ends it", host, port, models[0].checkpoint)
        settings = uvicorn.Config(app, log_level="warning", limit_concurrency=CONNECTIONS, server_header=False)
        uvicorn.Server(settings).run([listening])


program = functools.partial(terminal.run, main)
