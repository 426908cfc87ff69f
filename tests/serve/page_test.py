#!/usr/bin/env python3
"""The page of `syncguard serve`, in a real browser (Debian's chromium and chromium-driver).

usage: page_test.py --list | page_test.py SYNCGUARD [CASE] | page_test.py --pictures FOLDER SYNCGUARD
"""

import base64
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import serving
from serving import TIMEOUT, TOKEN, ServeTestCase, until

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """Controls Chromium by the WebDriver protocol."""

    def __init__(self, width=1280, height=900, dark=False):
        self.folder = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        port = None
        while not port:
            line = self.driver.stdout.readline()
            if not line:
                raise AssertionError("chromedriver did not start")
            port = re.search(r"started successfully on port (\d+)", line)
        self.base = f"http://127.0.0.1:{port[1]}/session"
        arguments = ["--headless", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-quic", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
                     f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}"]
        if dark:
            arguments.append("--blink-settings=preferredColorScheme=0")
        options = {"alwaysMatch": {"goog:chromeOptions": {"args": arguments},
                                   "goog:loggingPrefs": {"browser": "ALL"}}}
        session = self.call("POST", "", {"capabilities": options})["sessionId"]
        self.base += f"/{session}"

    def call(self, method, path, data=None):
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.base + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """Runs JavaScript and returns its result."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, key):
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def text(self, selector):
        """Empty if there is no such element."""
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def keys(self):
        """The keys of the rows that are shown."""
        return self.run("return [...document.querySelectorAll('.key')].map((key) => key.textContent)")

    def complaints(self):
        """What the page's scripts and the content security policy complained about."""
        log = self.call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]

    def picture(self, path):
        height = self.run("return document.documentElement.scrollHeight")
        width = self.run("return document.documentElement.clientWidth")
        self.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": min(height, 1300), "deviceScaleFactor": 1, "mobile": False}})
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def quit(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.send_signal(signal.SIGTERM)
            self.driver.wait(timeout=TIMEOUT)
            self.driver.stdout.close()
            # Chromium may still write to its profile.
            self.folder._ignore_cleanup_errors = True
            self.folder.cleanup()


def many_locks(number):
    holders = [f"deploy@web-{host}/{4700 + host} ./worker" for host in range(1, 40)]
    return [(f"orders:{index:05d}", holders[index % len(holders)], 3 + index * 7 % 4000, 5 + index * 13 % 55, index % 41 // 40)
            for index in range(number)]


class Page(ServeTestCase):
    def open(self, *options, **arguments):
        self.server = self.serve(*options)
        return self.browse(self.server, **arguments)

    def browse(self, server, **arguments):
        browser = Browser(**arguments)
        self.addCleanup(browser.quit)
        browser.open(server.url)
        return browser

    def is_live(self, browser):
        return until(lambda: browser.text("#connection") == "Live" and browser.text("#total") != "–", "the page is live")

    def test_ShowsLockAppearMoveAndVanish(self):
        browser = self.open()
        self.is_live(browser)
        until(lambda: browser.text("#empty") == "No locks are held.", "the page is empty")
        first = self.store.acquire("deploy")
        until(lambda: browser.keys() == ["deploy"], "the lock appears")
        fence = self.store.syncguard("fence", "deploy")
        self.assertIn("acquired by", browser.text("#changes"))
        browser.click(".key")
        until(lambda: fence in browser.text("tr.details"), "the details show the fence")
        self.store.release(first)
        second = self.store.acquire("deploy")
        fence = self.store.syncguard("fence", "deploy")

        def shows_next_holder():
            # If the server looked at the store between release and acquire, the row with its details was gone for a moment.
            if browser.keys() == ["deploy"] and not browser.text("tr.details"):
                browser.click(".key")
            return fence in browser.text("tr.details")

        until(shows_next_holder, "the lock moves to the next holder")
        self.store.release(second)
        until(lambda: browser.keys() == [], "the lock vanishes")
        self.assertIn("became free", browser.text("#changes"))
        self.assertEqual(browser.text("#total"), "0")
        self.assertEqual(browser.complaints(), [])

    def test_KeysWithMarkupAreText(self):
        key = "<img src=x onerror=alert(1)>\u202e\x1b[2J</td><script>document.title='x'</script>"
        self.store.insert([(key, "<b>holder</b>", 5, 600, 0)])
        browser = self.open()
        until(lambda: browser.keys(), "the lock appears")
        self.assertEqual(browser.keys(), [key.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")])
        browser.click(".key")
        self.assertEqual(browser.run("return document.querySelectorAll('main img, main b, main script').length"), 0)
        self.assertIn("<b>holder</b>", browser.text("tbody"))
        self.assertEqual(browser.run("return document.title"), "Locks · SyncGuard")
        self.assertEqual(browser.complaints(), [])

    def test_TenThousandLocksStayUsable(self):
        self.store.insert(many_locks(10_000))
        browser = self.open()
        until(lambda: browser.text("#total") == "10,000", "all locks arrive")
        self.assertEqual(len(browser.keys()), 100)
        self.assertEqual(browser.text("#range"), "1–100 of 10,000")
        browser.click("#next")
        self.assertEqual(browser.keys()[0], "orders:00100")
        # The time that the page needs to show a filtered, sorted list.
        took = browser.run("""
            const start = performance.now();
            const filter = document.getElementById("filter");
            filter.value = "web-7/";
            filter.dispatchEvent(new Event("input"));
            document.querySelector("[data-order=held]").click();
            document.body.getBoundingClientRect();
            return performance.now() - start;""")
        self.assertLess(took, 2000)
        self.assertEqual(browser.text("#range"), "1–100 of 257")
        held = browser.run("return [...document.querySelectorAll('[data-label=\"Held for\"] span')].map((s) => s.textContent)")
        self.assertTrue(held[0].startswith("1h"), held[0])
        print(f"filtered and sorted 10,000 locks in {took:.0f} ms")

    def test_WorksWithTheKeyboardAndScreenReaders(self):
        self.store.insert([(f"key{number}", "web-1/7", number, 600, number) for number in range(5)])
        browser = self.open()
        until(lambda: len(browser.keys()) == 5, "the locks appear")
        browser.press("/")
        self.assertEqual(browser.run("return document.activeElement.id"), "filter")
        browser.type("#filter", "key3")
        until(lambda: browser.keys() == ["key3"], "the list is filtered")
        browser.press("\ue004")  # Tab: to the first column's button, because the list of orders is for narrow screens
        self.assertEqual(browser.run("return document.activeElement.dataset.order"), "key")
        browser.run("document.querySelector('.key').focus()")
        browser.press("\ue007")  # Enter
        self.assertEqual(browser.run("return document.querySelector('.key').getAttribute('aria-expanded')"), "true")
        # The focus survives the next updates, also of the rows above.
        above = self.store.acquire("a-key3")
        until(lambda: browser.keys() == ["a-key3", "key3"], "the new lock appears")
        self.assertEqual(browser.run("return document.activeElement.textContent"), "key3")
        self.store.release(above)
        until(lambda: browser.keys() == ["key3"], "the lock vanishes")
        self.assertEqual(browser.run("return document.activeElement.textContent"), "key3")
        browser.click("[data-order=waiters]")
        self.assertEqual(browser.run("return document.querySelectorAll('[aria-sort]').length"), 1)
        unnamed = browser.run("""
            return [...document.querySelectorAll("button, input, select")].filter((control) =>
              !control.textContent.trim() && !control.labels?.length && !control.getAttribute("aria-label")).length""")
        self.assertEqual(unnamed, 0)

    def test_FitsAPhone(self):
        self.store.insert([("a-very-long-key:" + "x" * 200, "deploy@" + "h" * 60 + "/1 ./deploy.sh", 5, 600, 3), ("b", "", 5, 600, 0)])
        browser = self.open(width=500, height=800)
        browser.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}})
        until(lambda: len(browser.keys()) == 2, "the locks appear")
        browser.click(".key")
        self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), 360)

    def test_AsksForTheTokenAndBreaksALock(self):
        self.store.acquire("deploy")
        browser = self.open("--token-file", self.token_file(), "--allow-break")
        until(lambda: browser.run("return document.getElementById('sign-in').open"), "the page asks for the token")
        browser.type("#token", "0" * 32)
        browser.click("#sign-in button")
        until(lambda: "wrong" in browser.text("#sign-in-error"), "the page says that the token is wrong")
        browser.type("#token", TOKEN)
        browser.click("#sign-in button")
        until(lambda: browser.keys() == ["deploy"], "the lock appears")
        self.assertNotIn(TOKEN, browser.run("return location.href"))
        browser.click(".key")
        browser.click("tr.details button")
        browser.click("#break-confirm")
        until(lambda: browser.keys() == [], "the lock is broken")
        self.assertEqual(self.store.syncguard("list"), "")

    def test_UnknownIsNotShownAsZero(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            server = self.serve(url=f"redis://127.0.0.1:{closed.getsockname()[1]}")
            browser = self.browse(server)
            until(lambda: "cannot be read" in browser.text("#problem"), "the page shows the problem")
            self.assertEqual(browser.text("#total"), "–")
            self.assertTrue(browser.run("return document.getElementById('empty').hidden"))

    def test_ReconnectsToARestartedServer(self):
        self.store.acquire("deploy")
        browser = self.open()
        self.is_live(browser)
        self.server.stop()
        until(lambda: "Not connected" in browser.text("#connection"), "the page notices")
        self.store.acquire("report")
        self.serve(listen=self.server.address)
        until(lambda: browser.keys() == ["deploy", "report"], "the page shows the locks of the new server")
        self.is_live(browser)


class Pictures(Page):
    """Not a test: takes the pictures of the guide."""

    def runTest(self):
        twelve = [
            ("deploy:production", "deploy@build-2/4711 ./deploy.sh", 192, 29, 2),
            ("migrate:orders", "ci@runner-14/88 ./migrate", 3725, 22, 0),
            ("nightly-backup", "root@db-1/1207 backup", 7384, 31, 0),
            ("report:daily", "reports@web-3/902 make-report", 48, 3, 1),
            ("payment:1042", "billing@eu-1", 1, 28, 0), ("payment:1043", "billing@eu-2", 2, 27, 4),
            ("leader:scheduler", "scheduler-7f9c/1", 86_461, 24, 6), ("import:catalog", "", 615, 12, 0),
            ("invoice:2026-11", "billing@eu-1", 12, 18, 0), ("cache:warm", "web-1/77", 4, 26, 0),
            ("mail:digest", "mailer@web-2/331 digest", 30, 9, 0), ("sync-orders", "cron@web-1/5120 sync-orders", 9, 21, 1)]
        for name, locks in (("0", []), ("12", twelve), ("10000", many_locks(10_000))):
            for look, width, dark in (("light", 1280, False), ("dark", 1280, True), ("phone", 390, False)):
                self.folder = self.enterContext(tempfile.TemporaryDirectory())
                self.store = serving.Store(self.command, self.folder)
                self.store.insert(locks)
                server = self.serve()
                browser = Browser(max(width, 500), 900, dark)
                browser.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
                    "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}})
                browser.open(server.url)
                self.is_live(browser)
                until(lambda: browser.text("#health") != "–", "the store is diagnosed")
                if name == "12":
                    lock = self.store.acquire("smoke-test")
                    until(lambda: "smoke-test" in browser.text("#changes"), "a change")
                    self.store.release(lock)
                    until(lambda: "became free" in browser.text("#changes"), "another change")
                    browser.click(".key")
                time.sleep(1)
                browser.picture(f"{self.pictures}/serve-{name}-{look}.png")
                browser.quit()
                server.stop()


del ServeTestCase  # not a test of this module

if __name__ == "__main__":
    if sys.argv[1] == "--pictures":
        Pictures.pictures, Pictures.command = sys.argv[2:]
        sys.exit(0 if unittest.TextTestRunner(verbosity=2).run(Pictures()).wasSuccessful() else 1)
    del Pictures
    serving.main(sys.modules[__name__])
