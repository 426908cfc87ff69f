#!/usr/bin/env python3
"""Creates the picture in this folder and the tables of docs/performance.md and bench/README.md from the results of the benchmark.

usage: make.py [--check]      --check changes nothing and fails if anything would have changed

The results are in bench/results/; `./dev bench BACKEND --json bench/results/BACKEND.json` writes them. The targets are defined
here.
"""

import json
import operator
import pathlib
import re
import sys
from collections import namedtuple
from html import escape

PICTURES = pathlib.Path(__file__).resolve().parent
ROOT = PICTURES.parent.parent

INK, PALE, LINE, ACCENT, FAINT = "#1f2933", "#f4f6f8", "#8a97a6", "#2f6f9f", "#5b6875"
FONT = "font-family='system-ui, sans-serif'"


class Picture:
    """An SVG under construction."""

    def __init__(self, width, height, title):
        self.parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
            f"role='img' aria-label='{escape(title, quote=True)}' {FONT}>",
            f"<title>{escape(title)}</title>",
            f"<rect width='{width}' height='{height}' rx='8' fill='#ffffff'/>",
        ]

    def box(self, x, y, width, height, fill=PALE, stroke=LINE):
        self.parts.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='6' fill='{fill}' stroke='{stroke}'/>")

    def text(self, x, y, text, size=13, colour=INK, anchor="start", weight="normal"):
        self.parts.append(f"<text x='{x}' y='{y}' font-size='{size}' fill='{colour}' text-anchor='{anchor}' "
                          f"font-weight='{weight}'>{escape(text)}</text>")

    def svg(self):
        return "\n".join(self.parts) + "\n</svg>\n"


BACKEND_NAMES = {"memory": "memory", "sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL",
                 "firestore": "Firestore"}
# The names of the measured stores, and the conditions of the measurement (run_bench in ./dev).
MEASURED_NAMES = BACKEND_NAMES | {"firestore": "Firestore emulator"}
CONDITIONS = "Redis without persistence; PostgreSQL and SQLite with an fsync for every grant; Firestore is Google's emulator."


# ----------------------------------------------------------------------------------------------------------------------
# Results and targets

def results():
    """The results of each backend, in the order of BACKEND_NAMES."""
    files = {path.stem: path for path in (ROOT / "bench/results").glob("*.json")}
    measured = [json.loads(files[name].read_text()) for name in BACKEND_NAMES if name in files]
    for result in measured:
        result["rows"] += relations(result)
    return measured


def relations(result):
    """Rows that relate other rows to each other."""
    values = {(group, row["name"]): row["value"] for group in (CYCLES, HAND_OFFS)
              for row in rows_of(result, group)}
    found = {}

    def relate(name, part, whole):
        if part in values and whole in values:
            found[name] = values[part] / values[whole]

    relate(HAND_OFF_LOSS, (HAND_OFFS, "64 processes"), (HAND_OFFS, "8 processes"))
    in_flight = [name for group, name in values if group == CYCLES and name.startswith("256 in flight, one client")]
    for name in in_flight:
        relate(GROUP_COMMIT, (CYCLES, name), (CYCLES, "1 blocking caller"))
    growth = [row["value"] / rows_of(result, group)[0]["value"] for group in PROMISED_GROWTH for row in rows_of(result, group)
              if "longer keys" not in group]
    if growth:
        found[GROWTH] = max(growth)
    return [{"group": RELATIONS, "name": name, "value": value, "unit": ""} for name, value in found.items()]


def rows_of(result, group):
    return [row for row in result["rows"] if row["group"].startswith(group)]


def number(value):
    if abs(value) >= 100 or isinstance(value, int):
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


# The target of a value: the group and the name of its row, the column, and the comparison with a limit. If one of n workers
# gets no turn, the fairness is at most (n - 1) / n. A higher value proves that every worker got turns.
Target = namedtuple("Target", "backend group name column sign limit words")
CYCLES, HAND_OFFS, LEASES, RELATIONS = "acquire + release", "hand-off", "leases that are held", "relations"
WAITERS = "memory of a waiter"
TROUBLED = "troubled waiters"
START = "start"
SIGNS = {"≥": operator.ge, ">": operator.gt, "≤": operator.le, "<": operator.lt, "=": operator.eq}


def ratio_of(backend, name, limit):
    return [Target(backend, CYCLES, name, "ratio", "≥", limit, f"≥ {limit}")]


def turns_of(backend, name, turns, longest_wait=None):
    targets = [Target(backend, HAND_OFFS, name, "value", "≥", turns, f"≥ {turns} turns/s"),
               Target(backend, HAND_OFFS, name, "jain", "≥", 0.95, "fairness ≥ 0.95"),
               Target(backend, HAND_OFFS, name, "time_outs", "=", 0, "no timeout")]
    if longest_wait:
        targets.append(Target(backend, HAND_OFFS, name, "longest_wait_ms", "<", longest_wait,
                              f"longest wait < {longest_wait} ms"))
    return targets


def relation_of(backend, name, sign, limit):
    return [Target(backend, RELATIONS, name, "value", sign, limit, f"{sign} {limit}")]


HAND_OFF_LOSS = "hand-off of 64 processes, relative to 8"
GROUP_COMMIT = "256 in flight, relative to 1 blocking caller"
SCRIPTS = "time of one script"
GROWTH = "largest growth of cost"

TARGETS = [
    Target("memory", CYCLES, "1 in flight, asynchronous", "microseconds_above_the_floor", "≤", 3, "≤ 3 µs above"),
    *ratio_of("sqlite", "1 blocking caller", 0.9),
    *ratio_of("sqlite", "4 processes", 0.85),
    *ratio_of("redis", "1 blocking caller", 0.85),
    *ratio_of("redis", "32 blocking threads, one client", 1.0),
    *ratio_of("redis", "256 in flight, one client, floor of 32 threads", 1.8),
    *ratio_of("postgres", "1 blocking caller", 0.9),
    *ratio_of("postgres", "10 blocking threads, one client", 0.9),
    *ratio_of("postgres", "256 in flight, one client, floor of 10 threads", 0.9),
    *ratio_of("firestore", "1 blocking caller", 0.9),
    *turns_of("sqlite", "8 processes", 200, longest_wait=1000),
    *turns_of("redis", "8 threads of one client", 400),
    *turns_of("redis", "8 clients", 400),
    *turns_of("redis", "8 processes", 400, longest_wait=1000),
    *turns_of("redis", "64 processes", 400, longest_wait=1000),
    *turns_of("postgres", "8 processes", 400, longest_wait=1000),
    Target("firestore", HAND_OFFS, "4 processes", "time_outs", "=", 0, "no timeout"),
    Target("firestore", HAND_OFFS, "4 processes", "jain", ">", 0.75, "every worker gets turns"),
    *(Target(backend, LEASES, "100000 held, memory each", "value", "≤", 1024, "≤ 1024 bytes") for backend in BACKEND_NAMES),
    Target("redis", LEASES, "10000 renewing, ttl 30 s, CPU of a core", "value", "≤", 5, "≤ 5 percent"),
    *(Target(backend, WAITERS, name, "value", "≤", 4096, "≤ 4096 bytes") for backend in BACKEND_NAMES
      for name in ("10000 waiters of one client on one key", "10000 keys with a waiter each")),
    *(Target(backend, TROUBLED, f"behind {who}, longest of 5", "value", "≤", 500, "≤ 500 ms")
      for backend in BACKEND_NAMES if backend != "memory" for what in ("dead", "frozen")
      for who in (f"1 {what} waiter", f"10 {what} waiters", f"100 {what} waiters")
      if backend != "firestore" or who.startswith("1 ")),
    *(Target(backend, TROUBLED, "80 ms away, turns relative to a fair share", "value", "≥", 0.5, "≥ 0.5")
      for backend in ("redis", "postgres")),
    Target("sqlite", START, "200 processes at once, `syncguard run` with a key each", "ratio", "≤", 3, "≤ 3 × the floor"),
    *relation_of("redis", HAND_OFF_LOSS, "≥", 0.8),
    *relation_of("sqlite", HAND_OFF_LOSS, "≥", 0.7),
    *relation_of("postgres", HAND_OFF_LOSS, "≥", 0.5),
    *relation_of("sqlite", GROUP_COMMIT, "≥", 5),
    Target("redis", SCRIPTS, "acquire and release, 256 in flight", "value", "≤", 10, "≤ 10 µs"),
    *(target for backend in BACKEND_NAMES for target in relation_of(backend, GROWTH, "≤", 1.5)),
]
# The planned numbers of leases, and the planned largest numbers of keys, waiters and bytes.
PROMISED_LEASES = {"held, memory each": 100_000, "renewing, ttl 30 s, CPU of a core": 10_000}
PROMISED_GROWTH = {"growth: a blocking cycle with other keys held": "100000 held",
                   "growth: a hand-off with more waiters of one client on the key": "10000 waiters",
                   "growth: a hand-off with more waiting clients": "10000 clients",
                   "growth: a blocking cycle with a waiter on each of other keys": "10000 keys",
                   "growth: a hand-off with a waiter on each of other keys": "10000 keys",
                   "growth: a blocking cycle with longer keys": "512 bytes"}
# Why a row misses its target.
REASONS = {
    ("memory", "1 in flight, asynchronous"): "2.93 to 3.02 between runs of the same day",
    ("memory", GROWTH): "10 000 waiters do not fit into the processor's cache, and 7 µs become 11",
    ("sqlite", "1 blocking caller"): "0.87 to 0.94 between runs: after an fsync, the library's 8 µs are no longer in the processor's cache",
    ("sqlite", GROWTH): "between 1.1 and 1.6 from run to run, as the disk varies",
    ("redis", "32 blocking threads, one client"): "1.00 to 1.06 between runs",
    ("redis", "256 in flight, one client, floor of 32 threads"):
        "1.76 to 1.87 between runs: the server is at its limit, and cheaper scripts help the floor, too",
    ("redis", GROWTH): "1.3 to 1.6 between runs, with another row each time",
    ("postgres", "1 blocking caller"): "0.93 to 0.99 between runs",
    ("postgres", "8 processes"): "399 to 469 between runs, as the disk varies",
    ("postgres", "10 blocking threads, one client"): "0.88 to 0.93 between runs: ten threads, ten server processes and two cores",
    ("postgres", "256 in flight, one client, floor of 10 threads"): "0.89 to 0.94 between runs",
    ("postgres", HAND_OFF_LOSS): "0.44 to 0.53 between runs: NOTIFY wakes every listening connection of a database, whatever its channel",
    ("postgres", GROWTH): "1.4 to 2.2 between runs, with another row each time, as the disk varies",
    ("firestore", GROWTH): "Firestore has no queue, so all waiters try after each release, and the emulator slows down with documents",
}
# Why a backend was measured with smaller numbers.
EXCUSES = {"firestore": "the emulator is slow"}


def targets_of(result, row):
    return [target for target in TARGETS
            if (target.backend, target.name) == (result["backend"], row["name"]) and row["group"].startswith(target.group)]


def reaches(target, value):
    return SIGNS[target.sign](value, target.limit)


def figure(result, row, column, shown=number):
    """A value with enough digits to show whether it meets its target."""
    value, text = row[column], shown(row[column])
    for target in targets_of(result, row):
        if target.column != column:
            continue
        digits = 3
        while reaches(target, float(text.replace(" ", ""))) != reaches(target, value):
            text = f"{value:.{digits}f}"
            digits += 1
    return text


def shown_ratio(value):
    return f"{value:.2f}"


def shown_fairness(value):
    return f"{value:.3f}"


def promised_name(row):
    """The name of a row of held leases with the planned number of leases. Other rows keep their name."""
    _, _, what = row["name"].partition(" ")
    return f"{PROMISED_LEASES[what]} {what}" if what in PROMISED_LEASES else row["name"]


def verdict(result, row):
    """The last two columns of a row: the target, and whether it is met."""
    promised = promised_name(row)
    if row["name"] != promised:
        return ["–", "measured with a smaller number"]
    targets = targets_of(result, row)
    missed = [target.words for target in targets if not reaches(target, row[target.column])]
    reached = "yes" if targets else "–"
    if missed:
        reached = "**no**" if len(targets) == 1 else f"**no**: {', '.join(missed)}"
    return [", ".join(target.words for target in targets) or "–", reached]


def summary(measured):
    """The values that miss their target, and the values that were measured with smaller numbers than planned, or not at all."""
    missed, absent, found = [], [], set()
    judged = 0
    for result in measured:
        excuse = EXCUSES.get(result["backend"])
        because = f", because {excuse}" if excuse else ""
        for row in result["rows"]:
            promised = promised_name(row)
            found.add((result["backend"], promised))
            if row["name"] != promised:
                absent.append(f"{name_of(result)}: {row['name']}, instead of {promised.partition(' ')[0]}{because}")
            targets = targets_of(result, row)
            judged += bool(targets)
            faults = [f"{figure(result, row, target.column)}, target {target.words}" for target in targets
                      if not reaches(target, row[target.column])]
            if faults:
                reason = REASONS.get((result["backend"], row["name"]))
                missed.append(f"{name_of(result)}, {row['name']}: {'; '.join(faults)}" + (f" ({reason})" if reason else ""))
        for group, last in PROMISED_GROWTH.items():
            names = [row["name"] for row in rows_of(result, group)]
            if last not in names:
                absent.append(f"{name_of(result)}, {group.removeprefix('growth: ')}: up to {names[-1] if names else 'nothing'}, "
                              f"instead of {last}{because}")
    absent.extend(sorted({f"{MEASURED_NAMES[target.backend]}, {target.name}: not measured" for target in TARGETS
                          if (target.backend, target.name) not in found}))
    lines = ["", f"All {judged} rows with a target meet it."]
    if missed:
        lines = ["", f"Of {judged} rows with a target, **{len(missed)} miss it**:", "",
                 *(f"- {one}" for one in missed)]
    if absent:
        lines.extend(["", "Measured with smaller numbers than planned:", "", *(f"- {one}" for one in absent)])
    return lines


def was_busy(measured):
    """Whether other programs used the machine when a benchmark began."""
    return any(result["load_before"] > result["cores"] for result in measured)


def name_of(result):
    return MEASURED_NAMES[result["backend"]]


def when(measured):
    """The day of the measurements, or the first and the last one."""
    dates = sorted({result["date"] for result in measured})
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def bench():
    measured = results()
    hand_offs = []
    for result in measured:
        rows = {row["name"]: row for row in rows_of(result, "hand-off")}
        row = rows.get("8 processes") or rows.get("4 processes") or rows["8 clients"]
        hand_offs.append((name_of(result), row))
    cycles = [(result, row) for result in measured for row in rows_of(result, "acquire + release")
              if row["name"].endswith("blocking caller") and "own coroutines" not in row["group"]]

    height = 130 + 34 * len(hand_offs) + (62 + 34 * len(cycles) if cycles else 0)
    picture = Picture(860, height, "Benchmark results")

    def bars(top, title, remark, entries, scale):
        picture.text(20, top, title, 15, weight="600")
        picture.text(20, top + 19, remark, 12, FAINT)
        for index, (label, value, said) in enumerate(entries):
            y = top + 34 + 34 * index
            length = max(2, round(290 * value / scale, 1))
            picture.text(144, y + 15, label, 13, anchor="end")
            picture.box(154, y, length, 22, ACCENT, ACCENT)
            picture.text(162 + length, y + 15, said, 12)

    entries = [(name, row["value"],
                f"{number(row['value'])} turns/s · {row['name']} · fairness {row['jain']:.3f} · "
                f"longest wait {number(row['longest_wait_ms'])} ms") for name, row in hand_offs]
    bars(34, "Contention: all workers compete for one key and hold it for 1 ms", "Turns per second. Fairness is Jain's index: "
         "1 if all workers got the same number of turns.", entries, max(entry[1] for entry in entries))
    entries = [(name_of(result), row["ratio"],
                f"{figure(result, row, 'ratio', shown_ratio)} of the floor"
                + "".join(f" (target {target.words})" for target in targets_of(result, row))
                + f" · {number(row['value'])} acquire + release /s") for result, row in cycles]
    if entries:
        bars(34 + 34 * len(hand_offs) + 62, "One caller, no contention", "Relative to the bare client library that does the "
             "same work, in the same run.", entries, max(1, *(entry[1] for entry in entries)))
    remark = f"Measured on {when(measured)}, on {measured[0]['cores']} cores"
    if was_busy(measured):
        remark += ", while other programs used the machine: only the fairness is reliable"
    picture.text(20, height - 36, CONDITIONS, 12, FAINT)
    picture.text(20, height - 18, remark + ".", 12, FAINT)
    return picture.svg()


def expectations():
    """The generated part of docs/performance.md: what a user can expect from each store."""
    measured = results()
    busy = " Other programs used the machine during the measurement: an idle one is faster." if was_busy(measured) else ""
    lines = [f"Measured on {when(measured)}, on {measured[0]['cores']} cores that also ran the server. " + CONDITIONS + busy, "",
             "| | one caller, acquire + release | many callers of one client | hand-offs per second, 8 processes | 64 processes |",
             "|---|---|---|---|---|"]
    for result in measured:
        values = {(group, row["name"]): row["value"] for group in (CYCLES, HAND_OFFS) for row in rows_of(result, group)}
        one = values[(CYCLES, "1 blocking caller")]
        many = max(value for (group, name), value in values.items() if group == CYCLES and name.startswith("256 in flight"))
        turns = [values.get((HAND_OFFS, f"{count} processes")) or values.get((HAND_OFFS, f"{count} clients")) for count in (8, 64)]
        few = values.get((HAND_OFFS, "4 processes"))
        shown = [number(value) if value else "–" for value in turns]
        if not turns[0] and few:
            shown[0] = f"{number(few)} (4 processes)"
        lines.append(f"| {name_of(result)} | {number(1e6 / one)} µs | {number(many)} per second | {shown[0]} | {shown[1]} |")
    return "\n".join(lines)


def tables():
    """The generated part of bench/README.md."""
    lines = []

    def table(title, header, rows):
        if rows:
            lines.extend(["", f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)])
            lines.extend("| " + " | ".join(row) + " |" for row in rows)

    measured = results()
    cores = sorted({str(result["cores"]) for result in measured})
    loads = ", ".join(f"{name_of(result)} {result['load_before']:.1f}" for result in measured)
    lines.append(f"Measured on {when(measured)}, on {' or '.join(cores)} cores that also ran the server.")
    lines.append(CONDITIONS)
    lines.append(f"Load of the machine at the start of each benchmark, including the load of the previous one: {loads}.")
    if was_busy(measured):
        lines.append("**Other programs used the machine during the measurement.** Fairness, timeouts and overlaps are reliable; "
                     "times, rates and ratios must be measured again on an idle machine.")
    lines.extend(summary(measured))
    table("Acquire and release without contention",
          ["", "callers", "cycles/s", "floor", "cycles/s of the floor", "ratio", "µs per cycle above the floor", "target", "met"],
          [[name_of(result), row["name"], number(row["value"]), re.search(r"floor: (.*)\)", row["group"]).group(1),
            number(row["floor"]), figure(result, row, "ratio", shown_ratio),
            figure(result, row, "microseconds_above_the_floor") if "microseconds_above_the_floor" in row else "–",
            *verdict(result, row)]
           for result in measured for row in rows_of(result, CYCLES)])
    table("Hand-off under contention: one key, held for 1 ms",
          ["", "workers", "turns/s", "fairness (Jain)", "longest wait", "timeouts", "overlaps", "target", "met"],
          [[name_of(result), row["name"], figure(result, row, "value"), figure(result, row, "jain", shown_fairness),
            figure(result, row, "longest_wait_ms") + " ms", str(row["time_outs"]), str(row["violations"]),
            *verdict(result, row)]
           for result in measured for row in rows_of(result, HAND_OFFS)])
    table("Waiters in trouble, and what they cost the others", ["", "situation", "result", "target", "met"],
          [[name_of(result), row["name"], f"{figure(result, row, 'value')} {row['unit']}".strip(), *verdict(result, row)]
           for result in measured for row in rows_of(result, TROUBLED)])
    table("Start", ["", "processes", "seconds", "floor", "seconds of the floor", "ratio", "target", "met"],
          [[name_of(result), row["name"], number(row["value"]), re.search(r"floor: (.*)\)", row["group"]).group(1),
            number(row["floor"]), figure(result, row, "ratio", shown_ratio), *verdict(result, row)]
           for result in measured for row in rows_of(result, START)])
    table("Held leases", ["", "leases", "result", "target", "met"],
          [[name_of(result), row["name"],
            "too small to measure" if number(row["value"]) == "0.00" else f"{figure(result, row, 'value')} {row['unit']}",
            *verdict(result, row)]
           for result in measured for row in rows_of(result, LEASES)])
    table("Memory of a waiter", ["", "waiters", "memory each", "target", "met"],
          [[name_of(result), row["name"], f"{figure(result, row, 'value')} {row['unit']}", *verdict(result, row)]
           for result in measured for row in rows_of(result, WAITERS)])
    table("Relations", ["", "relation", "value", "target", "met"],
          [[name_of(result), row["name"], figure(result, row, "value"), *verdict(result, row)]
           for result in measured for row in rows_of(result, RELATIONS)])
    table("Server time of one script", ["", "script", "µs", "target", "met"],
          [[name_of(result), row["name"], figure(result, row, "value"), *verdict(result, row)]
           for result in measured for row in rows_of(result, SCRIPTS)])
    table("Growth of cost", ["", "operation", "with", "result", "relative to the first row"],
          [[name_of(result), group.removeprefix("growth: "), row["name"], f"{number(row['value'])} {row['unit']}",
            number(row["value"] / rows_of(result, group)[0]["value"])]
           for result in measured for group in PROMISED_GROWTH for row in rows_of(result, group)])
    return "\n".join(lines)


def page(path, generated):
    """The page with its generated part replaced."""
    begin, end = "<!-- figures: made by docs/pictures/make.py -->\n", "<!-- end of the figures -->\n"
    before, rest = path.read_text().split(begin)
    after = rest.split(end)[1]
    return before + begin + generated + "\n" + end + after


def main():
    wanted = {
        PICTURES / "bench.svg": bench(),
        ROOT / "docs/performance.md": page(ROOT / "docs/performance.md", expectations()),
        ROOT / "bench/README.md": page(ROOT / "bench/README.md", tables()),
    }
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run docs/pictures/make.py", file=sys.stderr)
        return 1 if stale else 0
    if sys.argv[1:]:
        sys.exit(__doc__)
    for path in stale:
        path.write_text(wanted[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
