"""Runs `syncguard serve` on a SQLite file, for the tests in this folder."""

import contextlib
import http.client
import json
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

TIMEOUT = 60
TOKEN = "0123456789abcdef0123456789abcdef"


def until(condition, message, timeout=TIMEOUT):
    """Waits until the condition returns a true value, and returns that."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not in time: {message}")
        time.sleep(0.02)


class Store:
    """A SQLite file with locks."""

    def __init__(self, command, folder):
        self.command = command
        self.path = f"{folder}/locks.db"
        self.url = f"sqlite:{self.path}"
        self.syncguard("setup")

    def syncguard(self, *words):
        done = subprocess.run([self.command, "--url", self.url, "-q", *words], capture_output=True, text=True, check=False,
                              timeout=TIMEOUT)
        if done.returncode != 0:
            raise AssertionError(f"syncguard {' '.join(words)} failed: {done.stderr}")
        return done.stdout.strip()

    def acquire(self, key, ttl="10m"):
        return self.syncguard("acquire", key, "--ttl", ttl)

    def release(self, lock_id):
        self.syncguard("release", lock_id)

    def insert(self, locks):
        """Inserts (key, holder, seconds held, seconds left, waiters), faster than acquiring."""
        now = int(time.time() * 1000)
        database = sqlite3.connect(self.path, timeout=TIMEOUT)
        with contextlib.closing(database), database:
            for number, (key, holder, held, left, waiters) in enumerate(locks):
                lock_id = f"{number:022d}"
                database.execute(
                    "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, holder)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (key, lock_id, now + left * 1000, now - held * 1000, f"{number + 1:015d}", key, holder))
                for waiter in range(waiters):
                    database.execute(
                        "INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms) VALUES (?, ?, ?, ?)",
                        (key, f"{number:011d}{waiter:011d}", waiter, now + 25_000))


class Server:
    """A running `syncguard serve`."""

    def __init__(self, command, url, *options, listen="127.0.0.1:0"):
        self.process = subprocess.Popen([command, "--url", url, "--json", "serve", "--listen", listen, *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start: {self.process.stderr.read()}")
        self.url = json.loads(line)["url"]
        self.address = self.url.split("//")[1].rstrip("/")
        self.host, self.port = self.address.rsplit(":", 1)

    def connect(self):
        return http.client.HTTPConnection(self.host, int(self.port), timeout=TIMEOUT)

    def request(self, path, method="GET", headers=None, body=None):
        """Returns the status, the headers and the body."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read().decode()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(timeout=TIMEOUT)
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()
        return code


class Events:
    """A stream of server-sent events."""

    def __init__(self, server, headers=None):
        self.connection = server.connect()
        self.connection.request("GET", "/api/events", headers=headers or {})
        self.reply = self.connection.getresponse()
        self.status = self.reply.status

    def next(self):
        name = data = None
        while True:
            line = self.reply.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
            elif not line and name:
                return name, data

    def until(self, wanted, condition=lambda data: True):
        """The data of the next event of this name that fulfills the condition."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            name, data = self.next()
            if name == wanted and condition(data):
                return data
        raise AssertionError(f"not in time: {wanted}")

    def close(self):
        self.connection.close()


class ServeTestCase(unittest.TestCase):
    command = ""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.store = Store(self.command, self.folder)

    def serve(self, *options, url=None, listen="127.0.0.1:0"):
        server = Server(self.command, url or self.store.url, "--interval", "100ms", *options, listen=listen)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def token_file(self, content=TOKEN):
        path = pathlib.Path(self.folder, "token")
        path.write_text(content + "\n")
        path.chmod(0o600)
        return str(path)

    def certificate(self):
        """The files of a certificate for 127.0.0.1 and its key."""
        names = [f"{self.folder}/{name}.pem" for name in ("cert", "key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-out", names[0], "-keyout", names[1]],
                       check=True, capture_output=True)
        return names


def main(module, command_index=1):
    """usage: TEST.py --list | TEST.py SYNCGUARD [CASE]"""
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    cases = {case.id().split(".")[-1].removeprefix("test_"): case for group in suite for case in group}
    if sys.argv[1] == "--list":
        print("\n".join(cases))
        return
    ServeTestCase.command = sys.argv[command_index]
    chosen = sys.argv[command_index + 1:] or list(cases)
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(cases[name] for name in chosen))
    sys.exit(0 if result.wasSuccessful() and result.testsRun == len(chosen) else 1)
