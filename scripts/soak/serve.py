"""Send malformed requests to `cyclegan-serve` for some minutes: `python scripts/soak/serve.py RUN --minutes 5`.

Several clients send damaged images of all formats, random bytes, broken HTTP, and requests that end too early; among
them, each sends whole images. Every whole image must get the bytes of its first translation, or the status 503 if the
server is busy. The exit code is 0 if they did, if the server never failed (status 500, or a traceback), and if it still
answers at the end. The memory of the server is printed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import io
import pathlib
import random
import re
import socket
import subprocess
import sys
import threading
import time

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
Whole = dict[str, tuple[bytes, bytes]]  # by format: an image file, and its translation
FORMATS = ("png", "jpeg", "webp", "bmp", "gif", "tiff", "jpeg2000")


def image(rng: random.Random, form: str) -> bytes:
    """Return the content of a small image file."""
    levels = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (24, 40, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, form)
    return file.getvalue()


def damaged(rng: random.Random) -> bytes:
    """Return an image file that was cut, changed or put together from two, or random bytes."""
    content = image(rng, rng.choice(FORMATS))
    cut = content[: rng.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 20)):
        changed[rng.randrange(len(content))] = rng.randrange(256)
    return rng.choice((cut, cut + image(rng, rng.choice(FORMATS)), rng.randbytes(rng.randrange(5000)), bytes(changed)))


def post(port: int, content: bytes, query: str = "") -> tuple[int, bytes]:
    """Return status and content of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", f"/translate{query}", content)
        answer = connection.getresponse()
        return answer.status, answer.read()


def break_http(rng: random.Random, port: int) -> None:
    """Send something that is no HTTP, or less than it announces."""
    beginnings = (
        b"",
        b"POST /translate HTTP/1.1\r\n",
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n",
    )
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(rng.choice(beginnings) + rng.randbytes(rng.randrange(2000)))
        if rng.random() < 0.5:
            connection.settimeout(0.2)
            connection.recv(1000)


def disturb(given: argparse.Namespace, port: int, seed: int, whole: Whole, counts: collections.Counter) -> None:
    """Send requests for the time of --minutes; count statuses, and wrong answers as "wrong"."""
    rng = random.Random(seed)
    queries = ("", "?direction=y2x", "?direction=up", "?format=tiff", "?format=%00", "?format=film&direction=x2y")
    end = time.monotonic() + 60 * given.minutes
    while time.monotonic() < end:
        time.sleep(given.pause)
        kind = rng.random()
        if kind < 0.2:
            break_http(rng, port)
            counts["broken"] += 1
        elif kind < 0.8:
            status, _ = post(port, damaged(rng), rng.choice(queries))
            counts[status] += 1
        else:
            content, expected = whole[rng.choice(FORMATS)]
            status, made = post(port, content)
            counts[f"whole {status}"] += 1
            counts["wrong"] += status != 503 and (status, made) != (200, expected)


def main() -> int:
    """Run the soak; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="folder of a run")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between the requests of a client")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    command = [sys.executable, ROOT / "scripts" / "serve.py", given.run, "--port", "0", "--at_once", f"{given.clients}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        lines: list[str] = []
        try:
            while not (found := re.search(r"http://127.0.0.1:(\d+)", lines[-1] if lines else "")):
                lines.append(server.stdout.readline())
            port, rng = int(found[1]), random.Random(given.seed)
            threading.Thread(target=lambda: lines.extend(server.stdout), daemon=True).start()
            contents = {form: image(rng, form) for form in FORMATS}
            whole = {form: (content, post(port, content)[1]) for form, content in contents.items()}
            counts, seeds = collections.Counter(), range(given.seed, given.seed + given.clients)
            clients = [threading.Thread(target=disturb, args=(given, port, seed, whole, counts)) for seed in seeds]
            memory = [resident(server.pid)]
            for client in clients:
                client.start()
            while any(client.is_alive() for client in clients):
                time.sleep(5)
                memory.append(resident(server.pid))
            lives = server.poll() is None and all(post(port, *each)[1] == made for *each, made in whole.values())
        finally:
            server.terminate()
    traces = sum("Traceback" in line for line in lines)
    print(dict(sorted(counts.items(), key=str)), f"tracebacks: {traces}, answers at the end: {lives}")
    print(
        f"memory of the server: {memory[0]:.0f} MB before, {memory[len(memory) // 2]:.0f} half, {memory[-1]:.0f} after"
    )
    return int(bool(counts["wrong"] or counts[500] or traces or not lives))


def resident(pid: int) -> float:
    """Return the memory of a process in MB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1e3


if __name__ == "__main__":
    sys.exit(main())
