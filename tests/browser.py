"""Headless Chromium for the tests of HTML pages."""

import json
import os
import select
import shutil
import signal
import subprocess
import time

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),  # a camera that shows a test pattern
]
KEY_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36}
KEY_CODES.update(ArrowLeft=37, ArrowUp=38, ArrowRight=39, ArrowDown=40)


class Browser:
    """One tab of a headless Chromium, driven by the DevTools protocol over two pipes."""

    def __init__(self, profile):
        flags = [*FLAGS, f"--user-data-dir={profile}"]
        command = ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1', "sh", CHROMIUM, *flags, "about:blank"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        self.session, self.count, self.unread, self.events = {}, 0, b"", []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True)  # to workers

    def send(self, method, **params):
        """Call a method of the protocol; return its result. Events that arrive before it go to `events`."""
        number = self._post(method, params, self.session)
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") == "Target.attachedToTarget":  # a worker, which waits
                for each in ("Network.enable", "Runtime.runIfWaitingForDebugger"):
                    self._post(each, {}, {"sessionId": answer["params"]["sessionId"]})
            elif "method" in answer:
                self.events.append(answer)

    def _post(self, method, params, session):
        """Send a call; return its number."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params, **session}
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        return self.count

    def receive(self):
        """Return the next message of the browser."""
        deadline = time.monotonic() + 60
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""
            assert data, "the browser has ended, or does not answer"
            self.unread += data
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def close(self):
        """End the browser and its helper processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()

    def open(self, path, width=1200, dark=False):
        """Open a file in a window of some width in pixels."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Page.navigate", url="about:blank")
        self.events.clear()
        self.send("Page.navigate", url=path.as_uri())
        self.js(
            "new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', () => done()))"
        )

    def js(self, expression):
        """Return the value of an expression, or the value that it promises."""
        result = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def widths(self):
        """Decode all images of the list; return their widths in their own pixels."""
        return self.js("""Promise.all([...document.querySelectorAll('ol img')].map(async image => {
            image.loading = 'eager'; await image.decode(); return image.naturalWidth; }))""")

    def wait_for(self, value, expression):
        """Wait until an expression has a value, because events may take effect a moment later."""
        deadline = time.monotonic() + 10
        while self.js(expression) != value:
            assert time.monotonic() < deadline, (expression, self.js(expression), value)

    def press(self, *keys):
        """Press keys, one after the other."""
        for key in keys:
            if len(key) == 1:
                typed = {"key": key, "text": key}
            else:
                typed = {"key": key, "code": key, "windowsVirtualKeyCode": KEY_CODES[key]}
                typed.update({"text": "\r"} if key == "Enter" else {})
            self.send("Input.dispatchKeyEvent", type="keyDown", **typed)
            self.send("Input.dispatchKeyEvent", type="keyUp", **{**typed, "text": ""})

    def problems(self):
        """Return the errors and warnings on the console, and the requests that left the machine."""
        bad = []
        for event in self.events:
            method, params = event["method"], event["params"]
            if method in ("Runtime.exceptionThrown", "Log.entryAdded") or params.get("type") in ("error", "warning"):
                bad.append(params)
            elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith("file:"):
                bad.append(params["request"]["url"])
        return bad
