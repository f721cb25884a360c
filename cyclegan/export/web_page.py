"""Export as a page that translates in the browser: a folder for any web server, with the networks as ONNX files."""

from __future__ import annotations

import dataclasses
import html
import json
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cyclegan import terminal
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import UserError, printable
from cyclegan.export import MARKERS

if TYPE_CHECKING:
    import tensorflow as tf

PAGE_FILES = pathlib.Path(__file__).with_name("web")  # folder of the files of each page
RUNTIME = "onnxruntime-web@1.22.0"  # the package of ONNX Runtime Web in npm's registry
SCRIPT, WASM = "ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.jsep.wasm"
COPIED_SCRIPT = "ort.webgpu.bundle.min.js"  # some servers do not know that .mjs is JavaScript
CDN = f"https://cdn.jsdelivr.net/npm/{RUNTIME}/dist/"
NOTICE = "No image leaves this computer: the network runs in this browser."
SERVER_NOTICE = "Images go to the program that serves this page, which translates them and keeps none."
SIDES = (128, 256, 384, 512, 768, 1024, 1536)  # longer sides in pixels, for the user to choose from


@dataclasses.dataclass(frozen=True)
class Page:
    """Texts and settings of a page."""

    title: str  # any text
    side: int  # longer side in pixels that the page chooses first
    multiple: int  # of pixels for the sides of the networks' input
    runtime: str | None = None  # folder with ONNX Runtime Web, "cdn" for the public one, or `None` for npm's package


def check(page: Page, channels: Sequence[int]) -> None:
    """Raise `UserError` if browsers can't show images of these channels, or if ONNX Runtime Web is missing."""
    wrong = [count for count in channels if count not in (1, 3)]
    if wrong:
        raise UserError(f"--format web: {wrong[0]} channels; expected 1 or 3, as browsers show no others")
    if page.runtime is None and not shutil.which("npm"):
        raise UserError(
            f"--format web needs npm to copy {RUNTIME}: install Node.js, or give --runtime DIR with the files"
            f" {SCRIPT} and {WASM}, or --runtime cdn"
        )
    if page.runtime and page.runtime != "cdn":
        _runtime_files(pathlib.Path(page.runtime))


def export(
    generators: Mapping[str, tf.keras.Model],
    out: pathlib.Path,
    images: Mapping[str, Sequence[np.ndarray]],
    page: Page,
) -> float:
    """Export generators as a page, as `exporter.export` does.

    Args:
        generators: Results of `make_generator` that compute in float32, by direction.
        out: Folder to make.
        images: uint8 images [H, W, C] to compare on, by direction.
        page: Contents of the page.

    Returns:
        The largest difference of the ONNX files from the networks, in gray levels of 255.
    """
    from cyclegan.export import exporter  # imports TensorFlow

    options = exporter.ExportOptions("onnx")
    with exporter.new_file(out) as made:
        shutil.copytree(PAGE_FILES, made)
        differences = [
            exporter.write_checked(generator, made / f"{direction}.onnx", images[direction], options)
            for direction, generator in generators.items()
        ]
        if page.runtime != "cdn":
            _copy_runtime(page.runtime, made / "runtime")
        inputs = {direction: generator.input_shape[-1] for direction, generator in generators.items()}
        for name, text in texts(page, inputs).items():
            (made / name).write_text(text, encoding="utf-8")
    return max(differences)


def texts(page: Page, inputs: Mapping[str, int], server: str = "") -> dict[str, str]:
    """Return the texts of the files of a page that depend on the networks.

    Args:
        page: Contents of the page.
        inputs: Channels of the originals by direction.
        server: URL that translates the images that are posted to it; by default, the browser translates.
    """
    index = (PAGE_FILES / "index.html").read_text(encoding="utf-8")
    for name, text in (
        ("policy", policy(CDN if page.runtime == "cdn" else "")),
        ("title", html.escape(printable(page.title))),
        ("notice", SERVER_NOTICE if server else NOTICE),
    ):
        index = index.replace(f"{{{{{name}}}}}", text)
    settings = {
        "server": server,
        "runtime": CDN + SCRIPT if page.runtime == "cdn" else f"runtime/{COPIED_SCRIPT}",
        "multiple": page.multiple,
        "side": page.side,
        "sides": sorted({*SIDES, page.side}),
        "directions": [
            {
                "name": direction,
                "label": " → ".join(DIRECTIONS[direction]),
                "file": f"{direction}.onnx",
                "inputs": count,
            }
            for direction, count in inputs.items()
        ],
    }
    return {"index.html": index, MARKERS["web"]: json.dumps(settings, indent=1)}


def policy(runtime: str = "") -> str:
    """Return a Content-Security-Policy that allows files beside the page, and those below the URL `runtime`.

    Images have blob: URLs. The worker starts from one, too, so that the policy of the page applies to it.
    """
    sources = f"'self' {runtime}".rstrip()
    return (
        f"default-src 'none'; script-src {sources} 'wasm-unsafe-eval'; connect-src {sources}; worker-src blob:;"
        " style-src 'self'; img-src blob: data:; base-uri 'none'; form-action 'none'"
    )


def _runtime_files(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Return ONNX Runtime Web's script and WebAssembly, in a folder or its `dist`, or in the `runtime` of a page."""
    for candidate in (folder, folder / "dist", folder / "runtime"):
        for script in (candidate / SCRIPT, candidate / COPIED_SCRIPT):
            if script.is_file() and (candidate / WASM).is_file():
                return script, candidate / WASM
    raise UserError(
        f"--runtime {printable(folder)}: expected a folder with {SCRIPT} and {WASM}, such as"
        f" node_modules/onnxruntime-web of {RUNTIME}, or cdn"
    )


def _copy_runtime(given: str | None, to: pathlib.Path) -> None:
    """Copy ONNX Runtime Web from a folder, or from npm, which downloads it or takes it from its cache."""
    to.mkdir()
    if given is not None:
        script, wasm = _runtime_files(pathlib.Path(given))
        shutil.copyfile(script, to / COPIED_SCRIPT)
        shutil.copyfile(wasm, to / WASM)
        return
    with tempfile.TemporaryDirectory() as folder, terminal.phase(f"Copying {RUNTIME}"):
        command = ["npm", "pack", RUNTIME, "--prefer-offline", "--silent"]
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        packed = next(pathlib.Path(folder).glob("*.tgz"), None)
        if done.returncode or not packed:
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise UserError(
                f"npm pack {RUNTIME} failed: {printable(reason[0])}; expected a network connection, --runtime DIR or"
                " --runtime cdn"
            )
        with tarfile.open(packed) as archive:
            for name, copy in ((SCRIPT, COPIED_SCRIPT), (WASM, WASM)):
                member = archive.extractfile(f"package/dist/{name}")
                assert member  # a file, not a folder
                (to / copy).write_bytes(member.read())
