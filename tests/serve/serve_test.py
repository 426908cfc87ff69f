#!/usr/bin/env python3
"""What `syncguard serve` answers, and what it refuses.

usage: serve_test.py --list | serve_test.py SYNCGUARD [CASE]
"""

import contextlib
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import unittest

import serving
from serving import TIMEOUT, TOKEN, Events, ServeTestCase, until


def bearer(token=TOKEN):
    return {"Authorization": f"Bearer {token}"}


class Pages(ServeTestCase):
    def test_ServesPageWithoutInlineCode(self):
        server = self.serve()
        status, headers, page = server.request("/")
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertNotIn("unsafe", headers["Content-Security-Policy"])
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(headers["Cache-Control"], "no-store")
        self.assertIsNone(re.search(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=|\bstyle=", page))
        # Nothing comes from elsewhere.
        files = re.findall(r'(?:src|href)="([^"#]+)"', page)
        self.assertEqual(sorted(set(files)), ["/icon.svg", "/page.css", "/page.js"])
        for name in files:
            self.assertEqual(server.request(name)[0], 200, name)

    def test_ListsLocksInPages(self):
        keys = [f"orders:{number:03d}" for number in range(250)] + ["other", 'odd <b>"\\\u202e\U0001f512']
        self.store.insert([(key, "web-1/7", 5, 600, 0) for key in keys])
        server = self.serve()
        until(lambda: server.request("/healthz")[0] == 200, "the store is read")
        found, cursor = [], ""
        while True:
            status, headers, body = server.request(f"/api/locks?prefix=orders%3A&limit=100&cursor={cursor}")
            self.assertEqual((status, headers["Content-Type"]), (200, "application/json"))
            page = json.loads(body)
            self.assertLessEqual(len(page["locks"]), 100)
            self.assertEqual(page["total"], len(keys))
            found += [lock["key"] for lock in page["locks"]]
            cursor = page["cursor"]
            if not cursor:
                break
        self.assertEqual(found, keys[:250])
        odd = json.loads(server.request("/api/locks?prefix=odd")[2])["locks"]
        self.assertEqual([lock["key"] for lock in odd], [keys[-1]])
        self.assertEqual(odd[0]["holder"], "web-1/7")
        self.assertNotIn("lockId", odd[0])
        for limit in ("0", "1001", "-1", "x", "9" * 30):
            self.assertEqual(server.request(f"/api/locks?limit={limit}")[0], 400, limit)

    def test_StreamsStateThenEveryChange(self):
        first = self.store.acquire("deploy")
        server = self.serve()
        events = Events(server)
        self.assertEqual(events.next()[0], "clock")
        state = events.until("state")
        self.assertEqual([lock["key"] for lock in state["locks"]], ["deploy"])
        self.assertEqual(state["changes"], [])
        self.store.acquire("report")
        update = events.until("update", lambda data: data["changes"])
        self.assertEqual([lock["key"] for lock in update["set"]], ["report"])
        self.assertEqual(update["changes"][0]["key"], "report")
        self.assertEqual(update["total"], 2)
        self.store.release(first)
        update = events.until("update", lambda data: data["changes"])
        self.assertEqual(update["removed"], ["deploy"])
        self.assertNotIn("fence", update["changes"][0])
        self.assertEqual(update["changes"][0]["previousFence"], state["locks"][0]["fence"])
        # A second viewer gets the same, from a state and the events after it.
        other = Events(server)
        state = other.until("state")
        keys = {lock["key"] for lock in state["locks"]}
        changes = state["changes"]
        while len(changes) < 2:
            update = other.until("update")
            keys = (keys | {lock["key"] for lock in update["set"]}) - set(update["removed"])
            changes += update["changes"]
        self.assertEqual(keys, {"report"})
        self.assertEqual([change["key"] for change in changes], ["report", "deploy"])
        for stream in (events, other):
            stream.close()

    def test_EventsNeverContainLockIds(self):
        lock_id = self.store.acquire("deploy")
        server = self.serve()
        events = Events(server)
        self.assertNotIn(lock_id, json.dumps(events.until("state")))
        self.assertNotIn(lock_id, server.request("/api/locks")[2] + server.request("/metrics")[2])
        events.close()

    def test_MetricsSatisfyPromtool(self):
        self.store.insert([("a", "web-1/7", 90, 600, 2), ("b", "web-2/8", 5, 600, 1)])
        server = self.serve()
        until(lambda: "store_finding" in server.request("/metrics")[2], "the store is diagnosed")
        metrics = server.request("/metrics")[2]
        done = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        value = lambda name: float(re.search(rf'^syncguard_store_{name}\{{backend="sqlite"\}} (\S+)$', metrics, re.M)[1])
        self.assertEqual((value("up"), value("locks"), value("waiters")), (1, 2, 3))
        self.assertGreaterEqual(value("oldest_hold_seconds"), 90)
        self.assertIn('syncguard_store_finding{backend="sqlite",check="integrity"} 0', metrics)

    def test_UnreachableStoreIsReported(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            server = self.serve(url=f"redis://127.0.0.1:{closed.getsockname()[1]}")
            until(lambda: "finding" in server.request("/metrics")[2], "the store is diagnosed")
            events = Events(server)
            state = events.until("state")
            self.assertIn("Redis", state["problem"])
            self.assertIsNone(state["total"], "nothing is known")
            self.assertEqual(server.request("/api/locks")[0], 503)
            self.assertEqual(server.request("/healthz")[0], 503)
            metrics = server.request("/metrics")[2]
            self.assertIn('syncguard_store_up{backend="redis"} 0', metrics)
            self.assertIn('check="reachable"} 2', metrics)
            self.assertNotIn("syncguard_store_locks", metrics)
            events.close()


class Limits(ServeTestCase):
    def test_RefusesForeignHostNames(self):
        server = self.serve("--host", "locks.example")
        status_of = lambda host: server.request("/", headers={"Host": host})[0]
        for host in ("127.0.0.1", f"127.0.0.1:{server.port}", "localhost:1", "[::1]:80", "locks.example", "LOCKS.example:80"):
            self.assertEqual(status_of(host), 200, host)
        for host in ("evil.example", "127.0.0.1.evil.example", "locks.example.evil.example", "", "[::1", "127.0.0.1:x",
                     "localhost:99999", "[127.0.0.1]"):
            self.assertEqual(status_of(host), 421, host)

    def test_TokenIsNeededForEverythingButThePage(self):
        server = self.serve("--token-file", self.token_file())
        for path in ("/api/locks", "/api/events", "/metrics"):
            status, headers, _ = server.request(path)
            self.assertEqual((status, headers["WWW-Authenticate"]), (401, 'Bearer realm="syncguard"'), path)
        for path in ("/", "/page.js", "/healthz"):
            self.assertIn(server.request(path)[0], (200, 503), path)
        for wrong in ("", TOKEN[:-1], TOKEN + "0", TOKEN.upper()):
            self.assertEqual(server.request("/metrics", headers=bearer(wrong))[0], 401)
        self.assertEqual(server.request("/metrics", headers={"Authorization": TOKEN})[0], 401)
        self.assertEqual(server.request(f"/metrics?token={TOKEN}")[0], 401)
        self.assertEqual(server.request("/metrics", headers=bearer())[0], 200)

    def test_RepliesToWrongTokensAreLimited(self):
        server = self.serve("--token-file", self.token_file())
        statuses = [server.request("/metrics", headers=bearer(f"{number:032d}"))[0] for number in range(100)]
        self.assertEqual(set(statuses), {401, 429})
        self.assertEqual(statuses[-1], 429)
        # The right one still works.
        self.assertEqual(server.request("/metrics", headers=bearer())[0], 200)

    def test_ClientsWithoutTheTokenTakeNothingFromOthers(self):
        server = self.serve("--token-file", self.token_file())
        statuses = [server.request("/healthz")[0] for _ in range(500)]
        self.assertIn(429, statuses)
        self.assertEqual(server.request("/metrics", headers=bearer())[0], 200)
        # Nor do they keep their connections.
        self.assertEqual(server.request("/")[1]["Connection"], "close")
        self.assertNotEqual(server.request("/metrics", headers=bearer())[1]["Connection"], "close")

    def test_RefusesUnknownPathsAndMethods(self):
        server = self.serve()
        until(lambda: server.request("/healthz")[0] == 200, "the store is read")
        for path in ("/x", "/../etc/passwd", "/api", "/page.css/", "//"):
            self.assertEqual(server.request(path)[0], 404, path)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"):
            self.assertEqual(server.request("/api/locks", method)[0], 405, method)
        self.assertEqual(server.request("/", "HEAD")[2], "")
        self.assertEqual(server.request("/api/events", "HEAD")[0], 405)

    def test_RequestsOfOtherSitesAreRefusedAndTakeNothingFromOthers(self):
        server = self.serve()
        until(lambda: server.request("/healthz")[0] == 200, "the store is read")
        foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        statuses = [server.request("/", headers=foreign)[0] for _ in range(300)]
        self.assertEqual(set(statuses), {403, 429})
        self.assertEqual(server.request("/healthz")[0], 200)
        self.assertEqual(server.request("/", headers={**foreign, "Sec-Fetch-Mode": "navigate"})[0], 200)
        own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
        self.assertEqual(server.request("/api/locks", headers=own)[0], 200)

    def raw(self, server, data):
        """Sends bytes, and returns what comes back until the server closes the connection, or its first kilobyte."""
        with socket.create_connection((server.host, int(server.port)), timeout=TIMEOUT) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            with contextlib.suppress(ConnectionError):
                return connection.recv(1024).decode("latin-1")
        return ""

    def test_OversizedRequestsAreRefused(self):
        server = self.serve()
        status_of = lambda data: (re.match(r"HTTP/1.\d (\d+)", self.raw(server, data)) or ["", "closed"])[1]
        host = b"Host: 127.0.0.1\r\n"
        self.assertEqual(status_of(b"GET / HTTP/1.1\r\n" + host + b"X: 1\r\n" * 65 + b"\r\n"), "431")
        self.assertIn(status_of(b"GET / HTTP/1.1\r\n" + host + b"X: " + b"x" * 100_000 + b"\r\n\r\n"), ("431", "closed"))
        self.assertIn(status_of(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n" + host + b"\r\n"), ("414", "closed"))
        self.assertEqual(status_of(b"GET /api/locks HTTP/1.1\r\n" + host + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000), "413")
        self.assertIn(status_of(b"GET / HTTP/1.1\r\n\r\n"), ("400", "421"))
        self.assertIn(status_of(b"\x16\x03\x01\x02\x00\x01\x00" + b"\0" * 100 + b"\r\n\r\n"), ("400", "closed"))
        self.assertEqual(status_of(b"GET / HTTP/1.1\r\n" + host + b"\r\n"), "200")

    def test_RequestsPerSecondAreLimited(self):
        server = self.serve()
        with contextlib.closing(server.connect()) as connection:
            statuses = []
            for _ in range(600):
                connection.request("GET", "/healthz")
                reply = connection.getresponse()
                reply.read()
                statuses.append(reply.status)
        self.assertIn(429, statuses)
        until(lambda: server.request("/")[0] == 200, "requests are answered again")

    def test_StreamsAreLimited(self):
        server = self.serve()
        streams = []
        for number in range(64):
            if number % 30 == 29:
                time.sleep(0.3)
            streams.append(Events(server))
        self.assertEqual({stream.status for stream in streams}, {200})
        self.assertEqual(Events(server).status, 503)
        streams.pop().close()
        # The place is free when the server notices that the client is gone.
        self.store.acquire("deploy")
        until(lambda: Events(server).status == 200, "another viewer may watch")
        for stream in streams:
            stream.close()

    def test_EndsAtOnceWithOpenStreams(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            streams = [Events(server) for _ in range(5)]
            start = time.monotonic()
            self.assertEqual(server.stop(number), -number)
            self.assertLess(time.monotonic() - start, 10)
            for stream in streams:
                stream.close()

    def test_PortInUseIsNamed(self):
        server = self.serve()
        self.refused("--listen", server.address, says="choose another port")

    def refused(self, *options, says):
        done = subprocess.run([self.command, "--url", self.store.url, "serve", *options], capture_output=True, text=True,
                              check=False, timeout=TIMEOUT)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertNotIn(TOKEN, done.stderr)

    def test_UnsafeOptionsAreRefused(self):
        token = self.token_file()
        self.refused("--listen", "0.0.0.0:0", says="--token-file")
        self.refused("--listen", "[::]:0", says="--token-file")
        self.refused("--listen", "0.0.0.0:0", "--token-file", token, says="--insecure")
        self.refused("--allow-break", says="--token-file")
        self.refused("--cert", token, says="--key")
        self.refused("--cert", token, "--key", token, says="cannot start the web server")
        self.refused("--token-file", f"{self.folder}/missing", says="No such file")
        for address in ("", "9465", "localhost", "example.com:80", "127.0.0.1:99999", "127.0.0.1:", "[::1:80", "::1:80"):
            self.refused("--listen", address, says="127.0.0.1:9465")
        self.refused("--interval", "1ms", says="100ms")
        self.refused("--token-file", self.token_file("short"), says="16 printable")

    def test_OtherHostsAreServedWithTokenAndTls(self):
        certificate, key = self.certificate()
        server = self.serve("--token-file", self.token_file(), "--cert", certificate, "--key", key, listen="0.0.0.0:0")
        self.assertTrue(server.url.startswith("https://"))
        context = ssl.create_default_context(cafile=certificate)
        request = (f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
                   "Connection: close\r\n\r\n").encode()
        with socket.create_connection(("127.0.0.1", int(server.port)), timeout=TIMEOUT) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                connection.sendall(request)
                self.assertIn(b"200 OK", connection.recv(1024))
        # Without TLS, the token is not even read.
        self.assertNotIn("200", self.raw(serving_on_loopback(server), request))


class Breaking(ServeTestCase):
    def setUp(self):
        super().setUp()
        self.lock_id = self.store.acquire("deploy")
        self.server = self.serve("--token-file", self.token_file(), "--allow-break")
        until(lambda: self.server.request("/healthz")[0] == 200, "the store is read")
        self.lock = json.loads(self.server.request("/api/locks", headers=bearer())[2])["locks"][0]

    def post(self, fence=None, body=None, **headers):
        given = {**bearer(), "Origin": f"http://{self.server.address}", "Content-Type": "application/json", **headers}
        body = json.dumps({"key": "deploy", "fence": fence or self.lock["fence"]}) if body is None else body
        status, _, text = self.server.request("/api/break", "POST", {k: v for k, v in given.items() if v}, body)
        return status, text

    def held(self):
        return self.store.syncguard("list", "deploy") != ""

    def test_BreaksOnlyTheFenceThatWasSeen(self):
        self.assertEqual(self.post(fence="000000000000001"), (200, '{"ok":false}'))
        self.assertTrue(self.held())
        self.assertEqual(self.post(), (200, '{"ok":true}'))
        self.assertFalse(self.held())

    def test_NeedsTokenOriginAndPost(self):
        self.assertEqual(self.post(Authorization=None)[0], 401)
        self.assertEqual(self.post(Origin=None)[0], 403)
        self.assertEqual(self.post(Origin="null")[0], 403)
        self.assertEqual(self.post(Origin="http://evil.example")[0], 403)
        self.assertEqual(self.server.request("/api/break", headers=bearer())[0], 405)
        for body in ("", "{", "[]", "{}", '{"key":"deploy"}', '{"key":"deploy","fence":1}', '{"key":"","fence":"000000000000001"}',
                     '{"key":"deploy","fence":"x"}', '{"key":"\\ud800","fence":"000000000000001"}'):
            self.assertEqual(self.post(body=body)[0], 400, body)
        self.assertEqual(self.post(body="[" * 4000)[0], 400)
        self.assertEqual(self.post(body="x" * 5000)[0], 413)
        self.assertTrue(self.held())

    def test_IsOffByDefault(self):
        server = self.serve("--token-file", self.token_file())
        headers = {**bearer(), "Origin": f"http://{server.address}"}
        body = json.dumps({"key": "deploy", "fence": self.lock["fence"]})
        self.assertEqual(server.request("/api/break", "POST", headers, body)[0], 403)
        self.assertTrue(self.held())


def serving_on_loopback(server):
    server.host = "127.0.0.1"
    return server


class SlowClients(ServeTestCase):
    """Takes longer than ten seconds: the time that a client has for its headers."""

    def test_ClientsThatTrickleAreClosedAndOthersServed(self):
        server = self.serve()
        slow = [socket.create_connection((server.host, int(server.port)), timeout=TIMEOUT) for _ in range(60)]
        start = time.monotonic()
        for connection in slow:
            connection.sendall(b"GET / HTTP/1.1\r\n")
        self.assertEqual(server.request("/")[0], 200)
        is_open = dict.fromkeys(slow, True)
        while any(is_open.values()) and time.monotonic() - start < TIMEOUT:
            for connection in slow:
                try:
                    connection.sendall(b"X")
                    connection.settimeout(0.01)
                    is_open[connection] = is_open[connection] and connection.recv(1) != b""
                except TimeoutError:
                    pass
                except OSError:
                    is_open[connection] = False
            time.sleep(0.5)
        self.assertFalse(any(is_open.values()))
        self.assertGreater(time.monotonic() - start, 8)
        for connection in slow:
            connection.close()
        self.assertEqual(server.request("/")[0], 200)


if __name__ == "__main__":
    serving.main(sys.modules[__name__])
