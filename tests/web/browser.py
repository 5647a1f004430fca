"""A headless Chromium, spoken to over a pipe with the DevTools protocol: no port, no library."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SKIPPED = 77


def find():
    """The browser's path; ends the test as skipped without one."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    print(f"SKIPPED: none of {', '.join(NAMES)} is installed")
    sys.exit(SKIPPED)


class Browser:
    """One browser with one page. Ends with the pipe, so also when the test is killed."""

    def __init__(self, path):
        self.folder = tempfile.mkdtemp(prefix="deft_web.")
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        command = [path, "--headless", "--disable-gpu", "--no-first-run",
                   "--disable-background-networking", "--remote-debugging-pipe",
                   "--force-device-scale-factor=1", f"--user-data-dir={self.folder}"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # which root has to do without
        # The protocol is spoken on descriptors 3 and 4.
        place = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(["bash", "-c", place, "bash", *command],
                                        pass_fds=(theirs_in, theirs_out),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.out = os.fdopen(ours_out, "wb")
        self.input = os.fdopen(ours_in, "rb")
        self.rest = b""
        self.events = []
        self.number = 0
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def _message(self):
        while b"\0" not in self.rest:
            more = os.read(self.input.fileno(), 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        self.out.flush()
        while True:
            answer = self._message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def wait_for(self, method):
        """The next event of this name, of those not yet seen or still to come."""
        for event in self.events:
            if event["method"] == method:
                return event
        while True:
            event = self._message()
            if "method" in event:
                self.events.append(event)
                if event["method"] == method:
                    return event

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def key(self, key):
        codes = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=codes[key])

    def resize(self, width, height, scheme, media=""):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        # Two frames: one in which observers of sizes run, one in which that was drawn.
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def complaints(self):
        """What the page said on the console, threw, or asked in a dialog."""
        found = []
        for event in self.events:
            method, parameters = event["method"], event["params"]
            if method == "Log.entryAdded" or method == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters))
            elif method == "Runtime.consoleAPICalled" or method == "Page.javascriptDialogOpening":
                found.append(f"{method}: {json.dumps(parameters)}")
        return found

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]

    def close(self):
        self.out.close()  # the end of the pipe is the end of the browser
        self.process.wait()
        self.input.close()
        shutil.rmtree(self.folder, ignore_errors=True)
