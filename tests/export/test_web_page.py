"""Pages that translate in the browser, served from 127.0.0.1 to headless Chromium with ONNX Runtime Web of npm."""

import base64
import functools
import http.server
import json
import shutil
import threading
import time
import types

import numpy as np
import pytest
from PIL import Image

from cyclegan.config import Config
from cyclegan.config.command_line import PRESETS
from cyclegan.errors import UserError
from cyclegan.export import web_page
from cyclegan.export.web_page import CDN, Page
from tests.export.models import make_generator

SIDE = 32
STATE = """[document.querySelector('main').getAttribute('aria-busy'), document.querySelector('#error').textContent,
    document.querySelector('#status').textContent]"""
PIXELS = """(() => { const c = document.querySelector('%s'); let s = '';
    for (const level of c.getContext('2d').getImageData(0, 0, c.width, c.height).data) s += String.fromCharCode(level);
    return [c.height, c.width, btoa(s)]; })()"""

DROP = """(async () => { const canvas = new OffscreenCanvas(32, 32), context = canvas.getContext('2d');
    context.fillStyle = 'red'; context.fillRect(0, 0, 32, 32);
    const data = new DataTransfer(); for (const file of %s) data.items.add(file);
    document.dispatchEvent(new DragEvent('drop', {dataTransfer: data})); })()"""

# A GPU that is found, but gives no device; the request for one is seen as a request of the worker.
NO_DEVICE = """Object.defineProperty(navigator, "gpu", { value: { requestAdapter: async () => ({
    limits: {}, features: new Set(), info: {},
    requestDevice: async () => { await fetch("%sdevice"); throw new Error("no device"); } }) } });
"""
# In place of ONNX Runtime Web: a network that fails.
FAILING = """export const env = { wasm: {} };
export class Tensor {}
export const InferenceSession = { create: async () => ({ run: async () => { throw %s; } }) };
"""


def test_policy_allows_no_other_origin():
    assert "http" not in web_page.policy() and "unsafe-inline" not in web_page.policy()
    allowed = [word for word in web_page.policy(CDN).replace(";", " ").split() if "//" in word]
    assert allowed == [CDN, CDN] and CDN.startswith("https://") and CDN.endswith("/dist/")


@pytest.mark.parametrize(
    "channels, runtime, text",
    [
        ((3, 5), "cdn", "--format web: 5 channels; expected 1 or 3, as browsers show no others"),
        ((3, 3), "nowhere", "--runtime nowhere: expected a folder with ort.webgpu"),
        ((3, 3), None, "--format web needs npm"),
    ],
)
def test_impossible_pages_are_refused(channels, runtime, text, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=text):
        web_page.check(Page("t", SIDE, 4, runtime), channels)


class Handler(http.server.SimpleHTTPRequestHandler):
    log_message = lambda *arguments: None  # noqa: E731


@pytest.fixture(scope="module")
def generators():
    return {"x2y": make_generator(3, 1), "y2x": make_generator(1, 3, antialias=True)}


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Return a function that exports generators as a page with the runtime of npm, and returns its address."""
    if not shutil.which("npm"):
        pytest.skip("no npm on the PATH")
    root = tmp_path_factory.mktemp("web")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    pages = []

    def export(name, generators):
        runtime = str(root / pages[0]) if pages else None  # npm is asked once
        noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)
        images = {direction: [noise[..., : each.input_shape[-1]]] for direction, each in generators.items()}
        try:
            web_page.export(generators, root / name, images, Page("a <run> & more", SIDE, 4, runtime))
        except UserError as error:
            if "npm pack" in str(error):
                pytest.skip(str(error))
            raise
        pages.append(name)
        return f"http://127.0.0.1:{server.server_port}/{name}/"

    export.root = root
    yield export
    server.shutdown()
    server.server_close()


def requests_of(browser):
    """Return the addresses that the page and its worker have asked for."""
    return [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]


def assert_close(levels, expected):
    """Assert that an output differs from the network's by 2 grey levels at most, and print the difference."""
    print(f"largest difference from TensorFlow: {np.abs(levels - expected).max():.2f} grey levels of 255")
    np.testing.assert_allclose(levels, expected, atol=2)


def open_page(browser, url, **settings):
    browser.open(types.SimpleNamespace(as_uri=lambda: url), **settings)
    browser.wait_for(False, "document.querySelector('main').hidden")


def choose(browser, path):
    """Choose a file, and return the (error, status) at the end."""
    node = browser.send("Runtime.evaluate", expression="document.querySelector('#file')")["result"]["objectId"]
    browser.send("DOM.setFileInputFiles", files=[str(path)], objectId=node)
    return wait_for_end(browser)


def wait_for_end(browser):
    deadline = time.monotonic() + 50
    while (state := browser.js(STATE))[0] != "false":
        assert time.monotonic() < deadline, state
        time.sleep(0.05)
    return state[1:]


def pixels(browser, canvas):
    height, width, data = browser.js(PIXELS % canvas)
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)[..., :3].astype(float)


def translated(generator, levels):
    return (generator(levels[None].astype(np.float32) / 127.5 - 1).numpy()[0] + 1) * 127.5


@pytest.mark.slow
def test_the_browser_computes_what_the_network_computes(browser, serve, generators, tmp_path, make_images):
    url, path = serve("both", generators), tmp_path / "Grüße 🦓.png"
    (image,) = make_images(1, SIDE)
    Image.fromarray(image).save(path)
    open_page(browser, url, width=390, dark=True)
    error, status = choose(browser, path)
    assert error == "" and status.startswith("Translated 32 \u00d7 32 pixels in ")
    np.testing.assert_array_equal(pixels(browser, "#input"), image)
    output = pixels(browser, "#output")
    assert_close(output, translated(generators["x2y"], image).repeat(3, axis=2))
    assert_close(pixels(browser, "#cycle"), translated(generators["y2x"], output[..., :1]))
    assert browser.js("document.querySelector('#download').download") == "Grüße 🦓-x2y.png"
    assert browser.js("document.title") == "a <run> & more"
    assert browser.js("document.documentElement.scrollWidth") <= 390
    browser.js("document.querySelector('#divider').focus()")
    browser.press("Home")
    assert browser.js("document.querySelector('.stage').style.getPropertyValue('--divider')") == "0%"
    origin = url.removesuffix("both/")
    requests = requests_of(browser)
    assert [other for other in requests if not other.startswith((url, f"blob:{origin}", "data:"))] == []
    of_the_worker = ("x2y.onnx", "y2x.onnx", f"runtime/{web_page.COPIED_SCRIPT}", f"runtime/{web_page.WASM}")
    assert {url + name for name in of_the_worker} <= set(requests)
    blocked = "fetch('http://127.0.0.1:1/').then(() => 'sent', () => 'blocked')"
    browser.events.clear()
    assert browser.js(blocked) == "blocked"
    browser.js("0")
    assert "Content Security Policy" in json.dumps(browser.events)

    (tmp_path / "ä.jpg").write_text("no image")
    assert choose(browser, tmp_path / "ä.jpg")[0].startswith("ä.jpg can't be read; expected an image")
    Image.new("1", (12000, 12000)).save(tmp_path / "large.png")
    error, _ = choose(browser, tmp_path / "large.png")
    assert error == "large.png: 12000 \u00d7 12000 pixels are too many for memory; expected at most 134 million."
    Image.fromarray(image).resize((45, 20)).save(tmp_path / "odd.png")
    assert choose(browser, tmp_path / "odd.png")[0] == "" and pixels(browser, "#output").shape == (14, 32, 3)


@pytest.mark.slow
def test_a_page_of_one_direction_takes_drops_and_the_camera(browser, serve, generators):
    open_page(browser, serve("one", {"x2y": generators["x2y"]}))
    assert browser.js("document.querySelector('#directions').hidden && document.querySelector('#result').hidden")
    browser.js(DROP % "[]")
    assert browser.js(STATE)[1] == "Nothing that was dropped is a file; expected an image file."
    browser.js(DROP % "[new File([await canvas.convertToBlob()], 'red.png')]")
    assert wait_for_end(browser)[0] == ""
    red = np.full((SIDE, SIDE, 3), (255, 0, 0))
    np.testing.assert_array_equal(pixels(browser, "#input"), red)
    np.testing.assert_allclose(pixels(browser, "#output"), translated(generators["x2y"], red).repeat(3, axis=2), atol=2)
    assert browser.js("document.querySelector('#back').hidden")  # nothing translates back
    browser.js(DROP % "[new File(['no image'], 'notes.txt')]")  # the page keeps what it shows
    assert wait_for_end(browser)[0].startswith("notes.txt can't be read; expected an image")
    shown = "[document.querySelector('#file').files[0].name, document.querySelector('#name').textContent]"
    assert browser.js(shown) == ["red.png", "red.png"] and not browser.js("document.querySelector('#result').hidden")

    browser.js("for (const i of [1, 2]) document.querySelector('#camera').click()")
    browser.wait_for(True, "document.querySelector('video').currentTime > 0.2")
    browser.js("document.querySelector('#viewfinder button').click()")
    browser.wait_for("camera.png", "document.querySelector('#name').textContent")
    assert wait_for_end(browser)[0] == "" and pixels(browser, "#input").std() > 10
    assert browser.js(shown) == ["camera.png", "camera.png"]


@pytest.mark.slow
def test_a_large_image_with_the_network_of_the_demo(browser, serve, tmp_path, make_images):
    """Print the difference and the seconds: run with -s."""
    demo = Config.from_settings(**PRESETS["demo"]).networks
    generator = make_generator(filters=demo.filters, residual_blocks=demo.residual_blocks)
    assert generator.count_params() == 273_059
    (image,) = make_images(1, 512)
    Image.fromarray(image).save(tmp_path / "large.png")
    open_page(browser, serve("demo", {"x2y": generator}))
    browser.js("document.querySelector('#side').value = 512")
    error, status = choose(browser, tmp_path / "large.png")
    print(status)
    assert error == "" and status.startswith("Translated 512 \u00d7 512 pixels in ")
    assert_close(pixels(browser, "#output"), translated(generator, image))


@pytest.mark.slow
def test_webassembly_computes_if_webgpu_fails(browser, serve, generators, tmp_path, make_images):
    url = serve("no-device", {"x2y": generators["x2y"]})
    worker = serve.root / "no-device" / "worker.js"
    worker.write_text(NO_DEVICE % url + worker.read_text(encoding="utf-8"), encoding="utf-8")
    (image,) = make_images(1, SIDE)
    Image.fromarray(image).save(tmp_path / "a.png")
    open_page(browser, url)
    error, status = choose(browser, tmp_path / "a.png")
    assert error == "" and status.endswith(" with WebAssembly.") and f"{url}device" in requests_of(browser)
    assert_close(pixels(browser, "#output"), translated(generators["x2y"], image).repeat(3, axis=2))


@pytest.mark.slow
def test_failing_translations_are_explained(browser, serve, generators, tmp_path):
    url = serve("failing", {"x2y": generators["x2y"]})
    little = "Memory is too small for 32 \u00d7 32 pixels; choose a shorter side."
    other = "The translation of 32 \u00d7 32 pixels failed: no zoom."
    Image.new("RGB", (SIDE, SIDE)).save(tmp_path / "a.png")
    texts = {"90284816": little, "new Error('std::bad_alloc')": little, "new Error('no zoom')": other}
    for number, (thrown, text) in enumerate(texts.items()):
        page = shutil.copytree(serve.root / "failing", serve.root / f"failing-{number}")
        (page / "runtime" / web_page.COPIED_SCRIPT).write_text(FAILING % thrown)
        open_page(browser, url.replace("failing", page.name))
        assert choose(browser, tmp_path / "a.png")[0] == text


@pytest.mark.slow
def test_a_translation_can_be_stopped(browser, serve, generators):
    url = serve("stopped", {"x2y": generators["x2y"]})
    (serve.root / "stopped" / "runtime" / web_page.COPIED_SCRIPT).write_text(FAILING % "await new Promise(() => {})")
    open_page(browser, url)
    for _ in range(2):  # the second with a new worker
        browser.js(DROP % "[new File([await canvas.convertToBlob()], 'red.png')]")
        browser.wait_for(True, "/^Translating with Web/.test(document.querySelector('#status').textContent)")
        browser.js("document.querySelector('#stop').click()")
        assert wait_for_end(browser) == ["", "Stopped."]
