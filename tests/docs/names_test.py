#!/usr/bin/env python3
"""Fails if a document mentions code, a file or a folder that does not exist.

names_test.py ROOT DOCUMENT  checks the words between backquotes in a document
names_test.py --self-test    checks small trees, to show that a name that is gone is noticed
"""

import pathlib
import re
import sys
import tempfile

# Words of other programs. Text with spaces (commands, SQL) is not checked.
FOREIGN = {"COMMIT", "LISTEN", "NOTIFY", "WAIT", "co_await"}
SOURCES = {".cpp", ".hpp", ".in", ".lua", ".sql", ".txt", ".proto"}


class Tree:
    def __init__(self, root):
        folders = [path for path in sorted(root.iterdir()) if path.is_dir() and path.name != "build" and path.name[0] != "."]
        paths = [path for folder in folders for path in [folder, *sorted(folder.rglob("*"))]]
        self.paths = [path.relative_to(root) for path in paths]
        self.texts = [path.read_text() for path in paths
                      if path.relative_to(root).parts[0] in {"src", "include"} and path.suffix in SOURCES]

    def has_path(self, name):
        wanted = pathlib.PurePath(name.replace("NAME", "*")).as_posix()
        return any(path.match(wanted) for path in self.paths)

    def has_member(self, scope, member):
        """Whether a file declares the scope and mentions the member, or a file mentions both together."""
        declaration = re.compile(rf"\b(class|struct|namespace)\s+(\w+\s+)?([\w:]+::)?{scope}\b")
        word = re.compile(rf"\b{member}\b")
        return any(f"{scope}::{member}" in text or (declaration.search(text) and word.search(text))
                   for text in self.texts)

    def has_word(self, name):
        word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
        return any(word.search(text) for text in self.texts) or any(path.stem == name for path in self.paths)


def complaints_about(root, document):
    tree = Tree(root)
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for name in sorted(set(re.findall(r"`([^`\n]+)`", text)) - FOREIGN):
        if " " in name:
            continue
        bare = name.removesuffix("()")
        if "/" in bare or re.search(r"\.\w+$", bare) and not bare[0].isupper():
            known = tree.has_path(bare)
        elif re.fullmatch(r"[A-Z]\w+\.[A-Z]\w+", bare):
            known = any(bare in path.read_text() for path in (root / "tests").rglob("CMakeLists.txt"))
        elif "::" in bare:
            *scopes, member = bare.split("::")
            known = tree.has_member(scopes[-1], member)
        else:
            known = tree.has_path(bare) if "NAME" in bare else tree.has_word(bare)
        if not known:
            yield f"{document.name}: `{name}` does not exist"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "src/locks").mkdir(parents=True)
        (root / "src/locks/client.hpp").write_text("class Client {\n  void close();\n};\n// syncguard-io\n")
        good = ["Client", "Client::close()", "src/locks", "client.hpp", "locks/client.hpp", "client", "syncguard-io", "a b"]
        bad = ["Customer", "Client::open", "Customer::close", "src/doors", "clients.hpp", "syncguard-oi", "Client.Closes"]
        (root / "tests").mkdir()
        page = root / "PAGE.md"
        failures = []
        for name in good + bad:
            page.write_text(f"See `{name}`.\n")
            found = list(complaints_about(root, page))
            if bool(found) != (name in bad):
                failures.append(f"{name}: {found}")
        return failures


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        found = self_test()
    else:
        found = list(complaints_about(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
    print("\n".join(found) or "ok")
    sys.exit(1 if found else 0)
