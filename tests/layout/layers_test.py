#!/usr/bin/env python3
"""Fails if a folder includes a file of a layer above it, if a backend's folder lacks a file that every backend has, or if
ForwardingBackend does not forward every virtual function of Backend.

layers_test.py ROOT        checks a source tree
layers_test.py --self-test checks small trees, good and bad, to show that the rules can fail
"""

import pathlib
import re
import sys
import tempfile
from collections import Counter

# The folders in src/ that a folder may include, besides itself. ARCHITECTURE.md shows the same.
MAY_INCLUDE = {
    "core": set(),
    "os": set(),
    "async": {"core", "os"},
    "locks": {"core", "os", "async"},
    "backends": {"core", "os", "async"},
    "backends/*": {"core", "os", "async", "backends"},
    "testing": {"core", "os", "async"},
    "registry": {"core", "backends"},
    # Pure helpers only: the command uses the library like any other program.
    "command": {"core"},
}

# Public headers that only some folders may include, directly or through other public headers.
PUBLIC_ONLY_IN = {
    r"(backend|forwarding_backend)\.hpp": {"public", "locks", "backends", "backends/*", "registry", "testing"},
    r"(admin|locks|lease|async|syncguard)\.hpp": {"public", "locks", "testing", "command"},
    r"(memory|sqlite|redis|postgres|firestore)\.hpp": {"public", "backends", "backends/*", "registry"},
    r"testing/": {"public", "testing"},
}

# Libraries that only some folders may include, directly or through public headers. "public" is include/syncguard.
ONLY_IN = {
    r"asio(/|\.hpp)": {"public", "async", "locks", "backends", "backends/*", "testing"},
    r"hiredis/": {"backends/redis"},
    r"libpq-fe\.h": {"backends/postgres"},
    r"sqlite3\.h": {"backends/sqlite"},
    r"(grpcpp/|google/protobuf/|firestore\.pb\.h)": {"backends/firestore"},
    r"openssl/ssl": {"backends/redis"},
    r"(CLI/|microhttpd\.h)": {"command"},
    r"(thread|iostream|fstream|unistd\.h|sys/socket\.h)$": {
        "public", "os", "async", "locks", "backends", "backends/*", "registry", "testing", "command"},
}

# Files that every backend has, and files that every backend with a store outside the process has.
ROLES = ["{name}_backend.cpp", "url.cpp"]
ROLES_OF_STORES = ["session.hpp", "connection.hpp", "wake_listener.hpp", "diagnosis.hpp"]
IN_PROCESS = {"memory"}

VIRTUAL = re.compile(r"virtual\s+(?!~)[^;]*?\b(\w+)\(")
OVERRIDE = re.compile(r"(?<!~)\b(\w+)\([^;]*?\boverride;")

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def layer_of(path):
    """The layer of a path in src/: core, backends, backends/redis, ..."""
    parts = path.parts
    if parts[0] == "backends" and len(parts) > 2:
        return "backends/" + parts[1]
    return parts[0]


def rule_of(layer):
    return "backends/*" if layer.startswith("backends/") else layer


def reached_from(public, header, seen):
    """What a public header includes, directly or through other public headers, and the header itself."""
    if header in seen:
        return
    seen.add(header)
    yield header
    file = public / header
    for included in INCLUDE.findall(file.read_text()) if file.exists() else []:
        yield from reached_from(public, included, seen)


def complaints_about(root):
    src, public = root / "src", root / "include"
    files = [(f, layer_of(f.relative_to(src))) for f in sorted(src.rglob("*.[ch]pp"))]
    files += [(f, "public") for f in sorted(public.rglob("*.hpp"))]
    for file, layer in files:
        layers = {layer, rule_of(layer)}
        for included in INCLUDE.findall(file.read_text()):
            where = f"{file.relative_to(root)} includes {included}"
            if included.startswith("syncguard/"):
                for reached in reached_from(public, included, set()):
                    own = reached.startswith("syncguard/")
                    rules, name = (PUBLIC_ONLY_IN, reached.removeprefix("syncguard/")) if own else (ONLY_IN, reached)
                    for pattern, folders in rules.items():
                        # Standard headers that a public header needs are no concern of the folder.
                        if re.match(pattern, name) and not layers & folders and (own or "/" in name):
                            yield f"{where}, which reaches {reached}: not in {layer}"
                continue
            if (src / included).exists():
                target = layer_of(pathlib.PurePath(included))
                if layer == "public":
                    yield f"{where}: public headers include no private ones"
                elif layer != target and rule_of(layer) not in MAY_INCLUDE:
                    yield f"{file.relative_to(root)}: the folder {layer} has no rule in {pathlib.Path(__file__).name}"
                elif layer != target and target not in MAY_INCLUDE[rule_of(layer)]:
                    yield f"{where}: {layer} may not know {target}"
                continue
            for library, folders in ONLY_IN.items():
                if re.match(library, included) and not layers & folders:
                    yield f"{where}: not in {layer}"
    for folder in sorted(f for f in (src / "backends").iterdir() if f.is_dir()):
        wanted = ROLES + ([] if folder.name in IN_PROCESS else ROLES_OF_STORES)
        for name in (role.format(name=folder.name) for role in wanted):
            if not (folder / name).exists():
                yield f"src/backends/{folder.name} has no {name}, which every such backend has"
    forwarding = public / "syncguard/forwarding_backend.hpp"
    if forwarding.exists():
        virtual = Counter(VIRTUAL.findall((public / "syncguard/backend.hpp").read_text()))
        for name in virtual - Counter(OVERRIDE.findall(forwarding.read_text())):
            yield f"ForwardingBackend does not forward every {name}() of Backend"


def self_test():
    good = {
        "include/syncguard/locks.hpp": "#include <syncguard/key.hpp>\n",
        "include/syncguard/key.hpp": "#include <string>\n",
        "include/syncguard/backend.hpp":
            "#include <asio/awaitable.hpp>\nvirtual ~Backend();\nvirtual A<B> look(K) = 0;\nvirtual A<B> look(I);\n",
        "include/syncguard/forwarding_backend.hpp": "A<B> look(K) override;\nA<B> look(std::function<void()> f) override;\n",
        "include/syncguard/options.hpp": "#include <syncguard/backend.hpp>\n",
        "src/core/key.hpp": "#include <syncguard/key.hpp>\n",
        "src/async/spawn.hpp": '#include "core/key.hpp"\n#include <asio/awaitable.hpp>\n',
        "src/locks/client.cpp": '#include "async/spawn.hpp"\n#include <syncguard/locks.hpp>\n',
        "src/backends/memory/memory_backend.cpp": '#include "async/spawn.hpp"\n',
        "src/backends/memory/url.cpp": "",
    }
    bad = {
        "src/core/bad.hpp": ('#include "async/spawn.hpp"\n', "core may not know async"),
        "src/core/clock.cpp": ("#include <asio/steady_timer.hpp>\n", "not in core"),
        "src/core/rules.hpp": ("#include <syncguard/options.hpp>\n", "reaches asio/awaitable.hpp: not in core"),
        "src/async/event.hpp": ("#include <syncguard/options.hpp>\n", "reaches syncguard/backend.hpp: not in async"),
        "src/backends/memory/client.cpp": ("#include <syncguard/locks.hpp>\n", "reaches syncguard/locks.hpp"),
        "src/async/bad.hpp": ('#include "locks/client.cpp"\n', "async may not know locks"),
        "src/backends/memory/bad.cpp": ('#include "locks/client.cpp"\n', "backends/memory may not know locks"),
        "src/backends/memory/sql.cpp": ("#include <sqlite3.h>\n", "not in backends/memory"),
        "src/locks/bad.cpp": ('#include "backends/memory/url.cpp"\n', "locks may not know backends/memory"),
        "src/command/bad.cpp": ('#include "locks/client.cpp"\n', "command may not know locks"),
        "src/new/bad.cpp": ('#include "core/key.hpp"\n', "the folder new has no rule"),
        "include/syncguard/bad.hpp": ('#include "core/key.hpp"\n', "public headers include no private ones"),
        "src/backends/etcd/url.cpp": ("", "has no etcd_backend.cpp"),
        "include/syncguard/forwarding_backend.hpp": ("A<B> look(K) override;\n", "does not forward every look()"),
    }

    def complaints(tree):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in tree.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(complaints_about(pathlib.Path(folder)))

    failures = [f"a good tree is refused: {c}" for c in complaints(good)]
    for name, (text, expected) in bad.items():
        found = complaints({**good, name: text})
        if not any(expected in c for c in found):
            failures.append(f"{name} is not refused with '{expected}': {found}")
    return failures


if __name__ == "__main__":
    found = self_test() if sys.argv[1:] == ["--self-test"] else list(complaints_about(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "ok")
    sys.exit(1 if found else 0)
