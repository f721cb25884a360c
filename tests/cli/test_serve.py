"""The server, over HTTP: the bytes of translate.py, limits, malformed requests, and its page in a browser."""

import concurrent.futures
import contextlib
import http.client
import io
import json
import socket
import threading
import time
import types

import numpy as np
import pytest
from PIL import Image

from cyclegan.cli import serve
from cyclegan.errors import UserError
from cyclegan.inference.model import Model
from cyclegan.inference.translate_files import translate
from tests.inference.runs import make_run

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")
AT_ONCE = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory, strategies):
    folder = tmp_path_factory.mktemp("serve") / "run"
    make_run(folder, strategies[1], channels_y=1)
    return Model(folder)


@pytest.fixture(scope="module")
def port(model):
    """Return the port of a server that takes 100 kB and 20,000 pixels."""
    server = uvicorn.Server(uvicorn.Config(serve.make_app([model], 100_000, 20_000, AT_ONCE), log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def request(port, path, content=None):
    """Return (status, type, content) of the answer to a GET, or to a POST of a content."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET" if content is None else "POST", path, content)
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type"), answer.read()


def image(form="png", size=(40, 24), **options):
    file, levels = io.BytesIO(), np.random.default_rng(1).integers(0, 256, (*size[::-1], 3)).astype(np.uint8)
    Image.fromarray(levels).save(file, form, **options)
    return file.getvalue()


@pytest.mark.parametrize("form, ending", [("png", ".png"), ("jpeg", ".jpg"), ("tiff", ".tif")])
@pytest.mark.parametrize("direction", ["x2y", "y2x"])
def test_an_answer_has_the_bytes_of_the_translated_file(port, model, tmp_path, form, ending, direction):
    content = image(form, dpi=(72, 72))
    (tmp_path / f"a{ending}").write_bytes(content)
    translate(model, tmp_path / f"a{ending}", tmp_path / "out", direction=direction)
    status, kind, made = request(port, f"/translate?direction={direction}", content)
    assert (status, kind) == (200, f"image/{form}") and made == (tmp_path / "out" / f"a{ending}").read_bytes()


def test_the_health_and_another_format(port, model):
    status, _, content = request(port, "/health")
    assert status == 200 and json.loads(content)["checkpoint"] == model.checkpoint.name
    status, kind, made = request(port, "/translate?format=webp", image())
    assert (status, kind) == (200, "image/webp") and Image.open(io.BytesIO(made)).size == (40, 24)


def test_a_get_of_a_translation_is_told_to_post(port):
    status, _, content = request(port, "/translate?direction=x2y")
    assert (status, json.loads(content)) == (
        405,
        {"detail": "GET /translate: expected POST of an image: curl --data-binary @FILE"},
    )
    assert request(port, "/absent")[0] == 404


def test_a_form_is_answered_with_the_command(port):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/translate", b"--a--", {"Content-Type": "multipart/form-data; boundary=a"})
        assert b"curl --data-binary @FILE" in connection.getresponse().read()


@pytest.mark.parametrize(
    "query, content, status, text",
    [
        ("", b"hello", 400, "is a text, not an image"),
        ("", b"", 400, "is an empty file"),
        ("", image()[:-200], 400, "image.png (a damaged PNG file: truncated)"),
        ("?direction=up", image(), 400, "has no generator up; expected --direction x2y or y2x"),
        ("?size=10", image(), 400, "unknown parameters: size; expected direction or format"),
        ("?format=exe", image(), 400, "--format exe: expected an ending such as jpg"),
        ("?format=dicom", image(), 400, "expected a DICOM file as original"),
        ("", image(size=(200, 101)), 413, "200 x 101 pixels; expected at most 0.02 million"),
        ("", bytes(100_001), 413, "more than 0.1 MB"),
    ],
    ids=range(9),
)
def test_what_can_not_be_translated_is_explained(port, query, content, status, text):
    answer = request(port, f"/translate{query}", content)
    assert answer[0] == status and text in json.loads(answer[2])["detail"]
    assert request(port, "/translate", image())[0] == 200


def test_too_many_requests_at_once_are_refused(port, monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(serve, "translate_content", lambda *arguments: (done.wait(30), ("a.png", b"made"))[1])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(request, port, "/translate", image()) for _ in range(AT_ONCE)]
        time.sleep(1)
        refused = request(port, "/translate", image())
        assert refused[0] == 503 and "2 requests are being answered" in json.loads(refused[2])["detail"]
        done.set()
        assert [each.result()[0] for each in waiting] == [200, 200]


def test_a_taken_port_is_named(model):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="expected a free port"):
        serve.main([str(model.path), "--port", str(taken.getsockname()[1])])


@pytest.mark.slow
def test_the_page_shows_what_the_server_translates(port, model, browser, tmp_path):
    (tmp_path / "a.png").write_bytes(image(size=(32, 32)))
    browser.open(types.SimpleNamespace(as_uri=lambda: f"http://127.0.0.1:{port}/"))
    browser.wait_for(False, "document.querySelector('main').hidden")
    node = browser.send("Runtime.evaluate", expression="document.querySelector('#file')")["result"]["objectId"]
    browser.send("DOM.setFileInputFiles", files=[str(tmp_path / "a.png")], objectId=node)
    browser.wait_for(True, "document.querySelector('#status').textContent.endsWith('with the server.')")
    data = "document.querySelector('#output').getContext('2d').getImageData(0, 0, 32, 32).data"
    shown = f"[...{data}].filter((_, i) => i % 4 == 0)"  # red, which is the gray level
    expected = np.asarray(model.x2y(tmp_path / "a.png"))
    np.testing.assert_array_equal(np.reshape(browser.js(shown), (32, 32)), expected)
    assert not browser.js("document.querySelector('#back').hidden")
