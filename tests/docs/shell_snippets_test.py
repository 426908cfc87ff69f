#!/usr/bin/env python3
"""Runs snippets of the documents: shell scripts, crontabs, SQL, the ACL line of a Redis user, and queries of a store's own tools.

usage: shell_snippets_test.py scripts|steps|crontab|sql|redis-user DOCUMENT [SYNCGUARD]
       shell_snippets_test.py queries|setup-script DOCUMENT SYNCGUARD STORE URL      (the server is running)
"""
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.parse

what, document = sys.argv[1:3]
command = sys.argv[3] if len(sys.argv) > 3 else ""
text = open(document, encoding="utf-8").read()


def blocks(kind):
    found = re.findall(r"^ *```" + kind + r"\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    if not found:
        sys.exit(f"{document} has no block of {kind}")
    return found


def expect(condition, message):
    if not condition:
        sys.exit(f"{document}: {message}")


class Host:
    """A folder with the command, the programs that the documents mention, and a store."""

    programs = ["nightly-backup", "migrate", "restart", "sync-orders", "make-report", "tar", "deploy.sh"]

    def __init__(self, folder):
        self.folder = folder
        self.url = f"sqlite:{folder}/locks.db"
        # Replaces the URL in every script, so that no script connects to another host.
        # The usual port may be in use.
        self.write("syncguard", f"[ \"$1\" != serve ] || set -- \"$@\" --listen 127.0.0.1:0\n"
                   f"SYNCGUARD_URL='{self.url}' exec '{command}' \"$@\"")
        for program in self.programs:
            self.write(program, f"echo {program} \"$*\" >>'{folder}/ran'")
        self.environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": folder, "URL": self.url, "LOCKS": self.url}

    def write(self, name, script):
        path = f"{self.folder}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o700)

    def ran(self):
        try:
            return open(f"{self.folder}/ran", encoding="utf-8").read().splitlines()
        except FileNotFoundError:
            return []

    def syncguard(self, *words):
        return subprocess.run([f"{self.folder}/syncguard", *words], capture_output=True, text=True, check=False,
                              timeout=120)

    def shell(self, script, **options):
        return subprocess.Popen(["/bin/sh", "-uc", script], cwd=self.folder, text=True, env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def scripts(host):
    for block in blocks("sh"):
        if "redis-cli" in block or block.startswith("./dev"):
            continue
        host.syncguard("acquire", "payment:42")
        shell = host.shell(block, start_new_session=True)
        if "syncguard serve" in block:
            printed = iter(shell.stdout.readline, "")
            expect(any(line.startswith("http://127.0.0.1:") for line in printed), f"{block}does not serve")
            os.killpg(shell.pid, signal.SIGTERM)
        _, said = shell.communicate(timeout=120)
        # A snippet may fail because a lock is held, but not because of a mistake.
        for mistake in ["--help", "InvalidArgument", "not found", "rror", "Unavailable"]:
            expect(mistake not in said, f"{block}says:\n{said}")


def steps(host):
    (script,) = [block for block in blocks("sh") if "trap" in block]
    shell = host.shell(script)
    shell.communicate(timeout=120)
    expect(shell.returncode == 0, f"the steps return {shell.returncode}")
    expect(host.ran() == ["migrate ", "restart "], f"the steps ran {host.ran()}")
    expect(host.syncguard("is-locked", "deploy").returncode == 1, "the lock was not released")
    # Interrupted in the middle, as by Ctrl-C, which signals the whole job.
    for number in [signal.SIGINT, signal.SIGTERM]:
        os.remove(f"{host.folder}/ran")
        host.write("migrate", f"echo begun >>'{host.folder}/ran'; exec sleep 600")
        shell = host.shell(script, start_new_session=True, preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL)])
        deadline = time.monotonic() + 60
        while not host.ran():
            expect(time.monotonic() < deadline, "the steps do not begin")
            time.sleep(0.01)
        os.killpg(shell.pid, number)
        shell.communicate(timeout=120)
        expect(host.ran() == ["begun"], f"the interrupted steps went on: {host.ran()}")
        expect(host.syncguard("is-locked", "deploy").returncode == 1, f"the lock was not released after signal {number}")


def crontab(host):
    (table,) = blocks("crontab")
    variables, jobs = {}, []
    for line in filter(None, table.splitlines()):
        if re.match(r"[A-Z_]+=", line):
            name, value = line.split("=", 1)
            variables[name] = value
        else:
            jobs.append(line.split(None, 5)[5])
    expect("/usr/local/bin" in variables.get("PATH", ""), "cron does not find the command")
    expect(re.match(r"[a-z]+://", variables.get("SYNCGUARD_URL", "")), "without a URL, each host would use its own lock")
    expect(len(jobs) == 2, f"there are {len(jobs)} jobs")
    for job in jobs:
        expect("%" not in job.replace("\\%", ""), f"cron ends this line at its %: {job}")
        # Another host has the lock. cron would mail anything that is printed.
        held = host.syncguard("acquire", re.search(r"--key (\S+)", job).group(1), "--ttl", "10m").stdout
        skipped = host.shell(job)
        printed = "".join(skipped.communicate(timeout=120))
        expect(skipped.returncode == 0 and printed == "", f"a skipped run returns {skipped.returncode} and prints: {printed}")
        expect(host.syncguard("release", held.strip()).returncode == 0, "the skipped run released the lock")
        # The signal below ends the wait of --at-least and releases the lock.
        shell = host.shell(job, start_new_session=True)
        deadline = time.monotonic() + 60
        before = len(host.ran())
        while len(host.ran()) == before and shell.poll() is None:
            expect(time.monotonic() < deadline, f"nothing runs: {job}")
            time.sleep(0.01)
        if "--at-least" in job:
            expect(host.syncguard("is-locked", "report").returncode == 0, "the lock is not held")
            os.killpg(shell.pid, signal.SIGTERM)
        _, said = shell.communicate(timeout=120)
        expect("--help" not in said and "InvalidArgument" not in said, said)
    expect(host.ran() == ["sync-orders ", "make-report "], f"the jobs ran {host.ran()}")


def sql(_):
    database = sqlite3.connect(":memory:")
    table, insert = [block for block in blocks("sql") if "newest_fence" in block]
    database.execute(table)
    for fence, rows in [(9, 1), (9, 1), (10, 1), (9, 0)]:
        changed = database.execute(insert, {"1": "account", "2": fence}).rowcount
        expect(changed == rows, f"fence {fence} changes {changed} rows")


def redis_user(host):
    (line,) = [block for block in blocks("text") if "user locker" in block]
    expect(len(line.strip().splitlines()) == 1, "a user is one line")
    with open(f"{host.folder}/users.acl", "w", encoding="utf-8") as file:
        file.write("user default off\n" + line.strip() + "\n")
    socket = f"{host.folder}/socket"
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", host.folder,
                               "--aclfile", f"{host.folder}/users.acl"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not os.path.exists(socket):
            expect(server.poll() is None and time.monotonic() < deadline, "Redis does not start with this user")
            time.sleep(0.01)
        url = f"redis+unix://locker:secret@{socket}"
        for words in [["run", "--key", "k", "--", "true"], ["status", "k"], ["list"], ["doctor"]]:
            done = subprocess.run([command, "--url", url, *words], capture_output=True, text=True, check=False,
                                  timeout=120)
            expected = 1 if words[0] == "status" else 0
            expect(done.returncode == expected, f"{words} returns {done.returncode}: {done.stdout}{done.stderr}")
    finally:
        server.kill()
        server.wait()


class HostWithStore(Host):
    """The same with a store that other programs can reach."""

    def __init__(self, folder):
        super().__init__(folder)
        self.store, self.url = sys.argv[4:6]
        self.write("syncguard", f"exec '{command}' \"$@\"")
        self.write("gcloud", "echo owner")
        self.environment.update({"URL": self.url, "URL_OF_ADMINISTRATOR": self.url, "SYNCGUARD_URL": self.url})
        parsed = urllib.parse.urlsplit(self.url)
        if self.store == "sqlite":
            self.environment["FILE"] = parsed.path
        if self.store == "firestore":
            self.environment["PROJECT"] = parsed.netloc
            self.environment["SERVER"] = "http://" + urllib.parse.parse_qs(parsed.query)["emulator"][0]

    def run(self, script):
        shell = self.shell(script)
        printed, said = shell.communicate(timeout=120)
        return shell.returncode, printed, said


def queries(host):
    host.run("syncguard setup")
    code, printed, said = host.run("syncguard --json acquire payment:42 --ttl 10m")
    expect(code == 0, said)
    held = json.loads(printed)
    host.run("syncguard acquire expired --ttl 1ms")
    expect(host.run("until ! syncguard -q is-locked expired; do sleep 0.1; done")[0] == 0, "the second lock does not expire")
    for block in blocks("sh " + host.store):
        code, printed, said = host.run(block)
        expect(code == 0 and said == "", f"{block}returns {code} and says:\n{said}")
        expect("payment:42" in printed and held["fence"] in printed, f"{block}does not show the lock:\n{printed}")
        expect("expired" not in printed, f"{block}shows an expired lock:\n{printed}")
        expect(held["lockId"] not in printed, f"{block}shows a lock id")


def setup_script(host):
    for block in blocks("sh " + host.store):
        for _ in range(2):
            code, _, said = host.run("set -e\n" + block)
            expect(code == 0 and "ERROR" not in said, f"{block}returns {code} and says:\n{said}")
    code, printed, said = host.run("syncguard --json doctor")
    expect(code == 0, f"doctor returns {code}: {printed}{said}")
    weak = [check for check in json.loads(printed)["checks"] if check["verdict"] != "fine" and check["check"] != "latency"]
    expect(not weak, f"doctor reports {weak}")


with tempfile.TemporaryDirectory() as scratch:
    if what in ["queries", "setup-script"]:
        {"queries": queries, "setup-script": setup_script}[what](HostWithStore(scratch))
    else:
        {"scripts": scripts, "steps": steps, "crontab": crontab, "sql": sql, "redis-user": redis_user}[what](Host(scratch))
