#!/usr/bin/env python3
"""Fails if docs/wire-format.md and the sources, or what the TypeScript library stored, differ.

wire_format_test.py ROOT              checks the page
wire_format_test.py ROOT --self-test  checks pages and sources with one mistake each, to show that each is noticed
"""

import json
import pathlib
import re
import sys

PAGE = "docs/wire-format.md"
POSTGRES = "src/backends/postgres/sql/schema.sql"
SQLITE = "src/backends/sqlite/sql/schema.sql"
FUNCTIONS = "src/backends/postgres/sql/functions.sql"
TABLES = "src/backends/postgres/tables.cpp"
NAMES = "src/backends/redis/names.cpp"
LUA = "src/backends/redis/lua"
DOCUMENTS = "src/backends/firestore/documents.cpp"
VERDICTS = "src/backends/verdict.hpp"
VECTORS = "tests/vectors/wire.json"

# Facts that a sentence of the page states: what a source says, and what the page says.
FACTS = [
    (f"{LUA}/join.lua", "queue_ttl = KEYS[1], ARGV[1], 3600000", "one hour after the last waiter joined"),
    (f"{LUA}/look.lua", "queue_ttl, pause = {}, {}, 3600000", "one hour after the last waiter joined, or came back"),
    (f"{LUA}/reserve.lua", "'PX', ends_at - now + 60000)", "60 s after its end"),
    (f"{LUA}/reserve.lua", "'PX', ends_at - now + 60000, 'NX')", "60 s after its end"),
    (f"{LUA}/reserve.lua", "'%s %.0f %.0f', waiter, place, ends_at", "`LOCKID PLACE UNTIL`"),
    (f"{LUA}/turn.lua", "turn_until > now and turn_until <= now + MAX_RESERVATION", "`now < UNTIL <= now + 300`"),
    (f"{LUA}/join.lua", "math.max(now, math.floor(last / 8) + 1) * 8 + steps", "8 × the time of joining in ms"),
    (f"{LUA}/pass.lua", "wake_root .. redis.sha1hex(waiter), ''", "an empty message to the channel `prefix-wake:SHA1`"),
    (f"{LUA}/decode.lua", "math.abs(lock.expiresAtMs) <= 1e15", "beyond ±10¹⁵"),
    ("src/backends/redis/redis_backend.cpp", "milliseconds_of(request.ttl + tolerance)", "ttl + 1000 ms"),
    ("src/backends/redis/wake_listener.cpp", 'event == "del" || event == "expired" || event == "evicted"',
     "`del`, `expired` and `evicted`"),
    ("src/core/reservation.hpp", "min_reservation{50}", "at least 50 ms"),
    ("src/core/reservation.hpp", "max_reservation{300}", "at most 300 ms"),
    ("src/core/key_rules.hpp", "dead_after{30'000}", "After 30 s"),
    ("src/core/key_rules.hpp", "purge_after{60'000}", "after 60 s"),
    ("include/syncguard/liveness.hpp", "tolerance{1000}", "`expires_at > now - 1000`"),
    (FUNCTIONS, "pg_notify('syncguard_wake', next_waiter.waiter || ' ' || {topic} || ' ' || next_waiter.reservation)",
     "channel `syncguard_wake`"),
    ("src/backends/postgres/wake_listener.cpp", "LISTEN syncguard_wake", "channel `syncguard_wake`"),
    (FUNCTIONS, "left(encode(sha256(convert_to(held_key, 'UTF8')), 'hex'), 16)",
     "the first 16\nhexadecimal digits of the SHA-256 of the storage key"),
    (TABLES, "hash_length = 24", "the first 24 hexadecimal digits"),
    (TABLES, 'core::sha256(locks_ + "," + counters_)', '`"public"."syncguard_locks","public"."syncguard_fence_counters"`'),
    (FUNCTIONS, "pg_advisory_xact_lock(hashtext(storage_key))", "`pg_advisory_xact_lock(hashtext(key))`"),
    ("src/backends/postgres/postgres_backend.cpp", "wake_token(const LockId& id) { return storage_hash(id.view()); }",
     "its first 16 bytes in base64url"),
    (POSTGRES, "CREATE UNLOGGED TABLE IF NOT EXISTS {waiters}", "UNLOGGED"),
    ("src/backends/sqlite/connection.cpp", "application_id = 0x53794775", "`application_id` is `0x53794775`"),
    ("src/backends/sqlite/connection.cpp", "schema_version = 2", "`user_version` is 2"),
    ("src/backends/sqlite/wake_files.cpp", '"-wake-" + digits[number]', "`PATH-wake-f`"),
    ("src/backends/sqlite/wake_files.hpp", "count = 16", "modulo 16"),
    (DOCUMENTS, "latest = 1'000'000'000'000'000", "from 0 to 10¹⁵"),
    ("include/syncguard/firestore.hpp", 'collection = "locks"', "`locks/KEY`"),
    ("include/syncguard/firestore.hpp", 'fence_collection = "fence_counters"', "`fence_counters/fence:KEY`"),
]

# Placeholders, and words of the stores themselves.
FOREIGN = {"LOCKID", "SHA1", "PLACE", "UNTIL", "HASH", "KEY", "PATH", "prefix", "public", "floor", "DATABASE__", "A", "Za", "z0", "9_",
           "TIME", "BEGIN", "IMMEDIATE", "max", "counter", "now", "tests", "vectors", "json", "1000", "300", "NULL", "IS", "NOT", "WHERE"}


class Tree:
    """The files of a repository. Some may be replaced by other texts."""

    def __init__(self, root, replaced):
        self.root = root
        self.replaced = replaced

    def text(self, name):
        return self.replaced.get(name) or (self.root / name).read_text()

    def texts(self, folder, pattern):
        return [self.text(str(path.relative_to(self.root))) for path in sorted((self.root / folder).rglob(pattern))]


# ----------------------------------------------------------------------------------------------------------------------
# The page


def section(page, title):
    """What is between a heading and the next one of the same or a higher level."""
    level = title.split()[0]
    start = page.index(f"\n{title}\n")
    rest = page[start + len(title) + 2:]
    end = re.search(rf"^#{{1,{len(level)}}} ", rest, re.MULTILINE)
    return rest[:end.start()] if end else rest


def rows_after(text, header):
    """The rows of all Markdown tables with this header, as lists of cells."""
    rows = []
    for table in re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().split("\n")]
        if lines[0][:len(header)] == header:
            rows += lines[2:]
    return rows


def bare(cell):
    return cell.strip("`")


def described(text):
    """The tables and documents that begin with a bold name: {name: (introduction, {column or field: type})}."""
    found = {}
    for name, introduction, table in re.findall(r"^\*\*`([^`]+)`\*\*: ((?:.+\n)+)(?:\n((?:\|.*\n)+))?", text, re.MULTILINE):
        rows = rows_after(table, ["column", "type"]) + rows_after(table, ["field", "type"])
        found[name] = (introduction, {bare(row[0]): row[1] for row in rows})
    return found


# ----------------------------------------------------------------------------------------------------------------------
# The sources


def plain_type(words):
    """'pg_catalog.text NOT NULL' as the page writes it: 'text, not null'."""
    name = words.split()[0].replace("pg_catalog.", "").lower()
    notes = []
    if "PRIMARY KEY" in words:
        notes.append("primary key")
    elif "NOT NULL" in words:
        notes.append("not null")
    if default := re.search(r"DEFAULT (\w+)", words):
        notes.append(f"default {default[1]}")
    return ", ".join([name, *notes])


def with_names(sql, tables_cpp):
    """Puts the default names in place of {locks} and the like."""
    names = {"locks": "syncguard_locks", "counters": "syncguard_fence_counters", "waiters": "syncguard_locks_waiters"}
    for placeholder, suffix in re.findall(r'"\{(\w+_index)\}", quoted\("idx_" \+ locks_name_\.table \+ "(\w+)"\)', tables_cpp):
        names[placeholder] = "idx_syncguard_locks" + suffix
    return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], found[0]), sql)


def tables_of(sql):
    found = {}
    for name, columns in re.findall(r"CREATE (?:UNLOGGED )?TABLE IF NOT EXISTS (\S+) \((.*?)\n\)", sql, re.DOTALL):
        found[name] = {line.split()[0]: plain_type(line.strip().rstrip(",").split(None, 1)[1])
                       for line in columns.strip().split("\n")}
    return found


def indexes_of(sql):
    return {name: f"`{table} ({columns}){condition}`" + (", unique" if unique else "")
            for unique, name, table, columns, condition in
            re.findall(r"CREATE (UNIQUE )?INDEX IF NOT EXISTS (\S+) ON (\S+) \(((?:[^()]|\([^()]*\))*)\)( WHERE [^;]*)?;", sql)}


def functions_of(sql, tables_cpp):
    """{name: (arguments, results)}, and complaints if the client passes other types."""
    version = re.search(r'version = "(\w+)"', tables_cpp)[1]
    found, complaints = {}, []
    for name, parameters in re.findall(r"^CREATE FUNCTION \{(\w+)_function\}\((.*?)\)(?: RETURNS SETOF RECORD)?\nLANGUAGE", sql,
                                       re.MULTILINE | re.DOTALL):
        arguments, results = [], []
        for parameter in re.split(r",\s+", parameters):
            is_result = parameter.startswith("OUT ")
            variable, kind = parameter.removeprefix("OUT ").split()
            (results if is_result else arguments).append(f"{variable} {kind.replace('pg_catalog.', '').lower()}")
        found[f"syncguard_{name}_{version}_HASH"] = (", ".join(arguments), ", ".join(results))
        passed = re.search(rf'function\("{name}", \{{(.*?)\}}', tables_cpp, re.DOTALL)
        types = re.findall(r'"([^"]+)"', passed[1]) if passed else []
        types = [{"int8": "bigint", "bool": "boolean"}.get(kind, kind) for kind in types]
        if types != [argument.split()[1] for argument in arguments]:
            complaints.append(f"{name}: the client passes {types}, and the function takes {arguments}")
    return found, complaints


def fields_of_redis(tree):
    text = tree.text(f"{LUA}/acquire.lua")
    document = re.search(r"string\.format\('(\{.*?\})'", text)[1]
    fields = {name: "integer" if value == "%d" else "string" for name, value in re.findall(r'"(\w+)":"?(%\w+)', document)}
    for name in re.findall(r'\? "" : ",\\"(\w+)\\":"', tree.text("src/backends/redis/redis_backend.cpp")):
        fields[name] = "string, optional"
    return fields


def fields_of_firestore(text, function):
    body = re.search(rf"wire::Document {function}\(.*?\n}}", text, re.DOTALL)[0]
    return {name: ("integer" if value.endswith("_at") else "string") + (", optional" if condition else "")
            for condition, name, value in re.findall(r'(if .*?\) )?set\(document, "(\w+)", ([\w.]+)', body)}


# ----------------------------------------------------------------------------------------------------------------------
# The comparison


def differences(what, written, real):
    for name in sorted(written.keys() | real.keys()):
        if name not in real:
            yield f"{what}: `{name}` is on the page and not in the sources"
        elif name not in written:
            yield f"{what}: `{name}` is in the sources and not on the page"
        elif written[name] != real[name]:
            yield f"{what}: `{name}` is {real[name]} in the sources, and {written[name]} on the page"


def complaints_about_tables(store, page, sql, inherited):
    text = section(page, f"## {store}")
    written, real = described(text), tables_of(sql)
    columns = {}
    for name, (introduction, own) in written.items():
        columns[name] = dict(own)
        if "the columns of PostgreSQL" in introduction:
            columns[name] |= {column: kind.replace("bigint", "integer") for column, kind in inherited[name].items()}
    for name in sorted(written.keys() | real.keys()):
        yield from differences(f"{store}, {name}", columns.get(name, {}), real.get(name, {}))
    indexes = {bare(row[0]): row[1] for row in rows_after(text, ["index", "on"])}
    yield from differences(f"{store}, indexes", indexes, indexes_of(sql))


def name_of(pattern, key, lock_id):
    return re.sub("key$", lambda _: key, pattern.replace("prefix", "syncguard").replace("LOCKID", lock_id))


def complaints_about_redis(tree, page, recorded):
    text = section(page, "## Redis")
    stored = {bare(row[0]): row[2] for row in rows_after(text, ["name", "value", "expires"])}
    fields = {bare(row[0]): row[1] for row in rows_after(text, ["field", "type"])}
    yield from differences("Redis, fields of a lock", fields, fields_of_redis(tree))

    names = tree.text(NAMES) + tree.text("src/core/storage_key.cpp")
    roots = set(re.findall(r'"(-?[a-z]+:)"', names))
    mentioned = {found for found in re.findall(r"`prefix(-?:?[a-z]+:)[^`]*`", text)}
    written = {name.removeprefix(":"): "" for name in mentioned}
    yield from differences("Redis, names", written, {root: "" for root in roots})

    for case in recorded:
        for name, found in case["stored"].items():
            key = next(json.loads(other["value"])["key"] for other in case["stored"].values() if other["value"].startswith("{"))
            wanted = [pattern for pattern in stored if name == name_of(pattern, key, case["acquire"]["lockId"])]
            if len(wanted) != 1:
                yield f"Redis: TypeScript stored {name[:60]}, which is not on the page"
            elif (stored[wanted[0]] != "never") != found["pttl_set"]:
                yield f"Redis: TypeScript stored {name[:60]} with another expiry than the page says"
            if found["value"].startswith("{"):
                kinds = {field: "integer" if isinstance(value, int) else "string" for field, value in json.loads(found["value"]).items()}
                required = {field: kind for field, kind in fields.items() if "optional" not in kind}
                yield from differences("Redis, what TypeScript stored", required, kinds)


def complaints_about_postgres(tree, page, recorded):
    tables_cpp = tree.text(TABLES)
    sql = with_names(tree.text(POSTGRES), tables_cpp)
    yield from complaints_about_tables("PostgreSQL", page, sql, {})

    text = section(page, "## PostgreSQL")
    real, complaints = functions_of(tree.text(FUNCTIONS), tables_cpp)
    yield from complaints
    written = {bare(row[0]): (bare(row[1]), bare(row[2].split("`, ")[0])) for row in rows_after(text, ["function", "arguments"])}
    yield from differences("PostgreSQL, functions", written, real)

    # Only Redis has values that are not locks.
    numbers = {int(value): name for name, value in re.findall(r"^  (\w+) = (-?\d+),", tree.text(VERDICTS), re.MULTILINE) if name != "foreign"}
    means = {int(row[0]): "" for row in rows_after(text, ["verdict", "means"])}
    yield from differences("PostgreSQL, verdicts", {str(number): "" for number in means}, {str(number): "" for number in numbers})

    columns = {name: own for name, (_, own) in described(text).items()}
    for column in recorded["columns"]:
        table, name = column["table_name"], column["column_name"]
        default = f", default {column['column_default']}" if column["column_default"] else ""
        is_required = column["is_nullable"] == "NO"
        kind = columns.get(table, {}).get(name, "missing")
        if kind.replace("primary key", "not null") != column["data_type"] + (", not null" if is_required else "") + default:
            yield f"PostgreSQL: TypeScript's {table}.{name} is not as on the page: {kind}"
    indexes = {bare(row[0]) for row in rows_after(text, ["index", "on"])}
    for index in recorded["indexes"]:
        if not index["indexname"].endswith("_pkey") and index["indexname"] not in indexes:
            yield f"PostgreSQL: TypeScript's index {index['indexname']} is not on the page"


def complaints_about_firestore(tree, page, recorded):
    written = described(section(page, "## Firestore"))
    text = tree.text(DOCUMENTS)
    for name, function, collection in [("locks/KEY", "lock_document", "locks"),
                                       ("fence_counters/fence:KEY", "counter_document", "fence_counters")]:
        fields = written.get(name, ("", {}))[1]
        yield from differences(f"Firestore, {name}", fields, fields_of_firestore(text, function))
        required = {field: kind for field, kind in fields.items() if "optional" not in kind}
        for case in recorded:
            for document in case[collection]:
                kinds = {field: next(iter(value)).removesuffix("Value") for field, value in document["fields"].items()}
                yield from differences(f"Firestore, what TypeScript stored in {collection}", required, kinds)


def unknown_words(tree, page):
    """Every word in inline code is one of the sources, a placeholder, or a word of a store."""
    texts = [text for folder, pattern in [("src/backends", "*.sql"), ("src/backends", "*.lua"), ("src/backends", "*.[ch]pp"),
                                          ("src/core", "*.[ch]pp")] for text in tree.texts(folder, pattern)]
    known = set(re.findall(r"\w+", " ".join([*texts, tree.text(VECTORS)]))) | FOREIGN
    # Names that the sources put together are compared above.
    known |= set(re.findall(r"`(idx_\w+|syncguard_\w+_HASH)`", page))
    for code in re.findall(r"`([^`\n]+)`", page):
        for word in re.findall(r"\w+", code):
            if word not in known:
                yield f"`{code}`: no source mentions {word}"


def complaints_about(root, replaced={}):
    tree = Tree(root, replaced)
    page, recorded = tree.text(PAGE), json.loads(tree.text(VECTORS))
    yield from complaints_about_redis(tree, page, recorded["redis"])
    yield from complaints_about_postgres(tree, page, recorded["postgres"])
    inherited = {name: own for name, (_, own) in described(section(page, "## PostgreSQL")).items()}
    yield from complaints_about_tables("SQLite", page, tree.text(SQLITE), inherited)
    yield from complaints_about_firestore(tree, page, recorded["firestore"])
    yield from unknown_words(tree, page)
    for file, source, sentence in FACTS:
        if source not in tree.text(file):
            yield f"{file} no longer says: {source}"
        if sentence not in page:
            yield f"the page no longer says: {sentence}"


def self_test(root):
    failures = [f"the page itself: {complaint}" for complaint in complaints_about(root)]
    mistakes = [
        # In the page.
        (PAGE, "| `lockId` | string | |\n| `expiresAtMs`", "| `lock` | string | |\n| `expiresAtMs`"),
        (PAGE, "| `acquiredAtMs` | integer | |\n| `fence` | string | |\n| `holder`",
         "| `acquiredAtMs` | string | |\n| `fence` | string | |\n| `holder`"),
        (PAGE, "| `prefix-turn:key`", "| `prefix-turns:key`"),
        (PAGE, "| the counter, in decimal | never |", "| the counter, in decimal | with the lock |"),
        (PAGE, "| `expires_at_ms` | bigint, not null | |\n", ""),
        (PAGE, "| `user_key` | text, not null |", "| `user_key` | text |"),
        (PAGE, "| `holder_lock_id` | text |", "| `holder_id` | text |"),
        (PAGE, "| `idx_syncguard_locks_lock_id` | `syncguard_locks (lock_id)`, unique |",
         "| `idx_syncguard_locks_lock_id` | `syncguard_locks (lock_id)` |"),
        (PAGE, "| `idx_syncguard_locks_place` | `syncguard_locks_waiters ((place + 0))` |\n", ""),
        (PAGE, "_join_v5_HASH", "_join_v4_HASH"),
        (PAGE, "`held_id text, ttl bigint`", "`held_id text, ttl text`"),
        (PAGE, "| -8 |", "| -7 |"),
        (PAGE, "channel `syncguard_wake`", "channel `syncguard_wakes`"),
        (PAGE, "| `renewed_at_ms` | integer |", "| `renewed_at` | integer |"),
        (PAGE, "with integer for bigint.\n", "with integer for bigint.\n\n| column | type | |\n|---|---|---|\n| `extra` | text | |\n"),
        (PAGE, "| `keyDebug` | string |", "| `key_debug` | string |"),
        (PAGE, "one hour after the last waiter joined", "two hours after the last waiter joined"),
        (PAGE, "`PATH-wake-f`", "`PATH-wake-7`"),
        (PAGE, "Nothing is stored for waiting", "Nothing is stored for `waitlists`"),
        # In the sources.
        (POSTGRES, "  holder pg_catalog.text,\n", "  holder pg_catalog.text,\n  host pg_catalog.text,\n"),
        (POSTGRES, "CREATE INDEX IF NOT EXISTS {place_index}", "CREATE UNIQUE INDEX IF NOT EXISTS {place_index}"),
        (SQLITE, "  turn_until_ms INTEGER\n", "  turn_ends_at_ms INTEGER\n"),
        (TABLES, 'version = "v5"', 'version = "v6"'),
        (TABLES, '"release", {"text"}', '"release", {"text", "int8"}'),
        (FUNCTIONS, "OUT extended_until BIGINT", "OUT valid_until BIGINT"),
        (f"{LUA}/acquire.lua", '"acquiredAtMs":%d', '"grantedAtMs":%d'),
        (f"{LUA}/reserve.lua", "now + 60000", "now + 30000"),
        (NAMES, '"-turn:"', '"-reserved:"'),
        (DOCUMENTS, 'set(document, "keyDebug"', 'set(document, "debug"'),
        (VERDICTS, "counter_at_end = -4", "counter_at_end = -5"),
        (VECTORS, '"column_name": "user_key"', '"column_name": "name"'),
    ]
    for file, old, new in mistakes:
        text = (root / file).read_text()
        if old not in text:
            failures.append(f"the self-test is out of date: {file} does not contain {old!r}")
        elif not list(complaints_about(root, {file: text.replace(old, new, 1)})):
            failures.append(f"not noticed: {file} with {new!r}")
    return failures


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    found = self_test(folder) if sys.argv[2:] == ["--self-test"] else list(complaints_about(folder))
    print("\n".join(found) or "ok")
    sys.exit(1 if found else 0)
