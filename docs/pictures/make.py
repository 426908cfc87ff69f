#!/usr/bin/env python3
"""Makes the pictures of this folder, and the tables of docs/performance.md, from what is in the repository.

usage: make.py [--check]      --check changes nothing and fails if anything would have changed

The layers come from the folders of src/, the life of a lease from the table in src/locks/lease_machine.hpp, the figures
from bench/results/, where `./dev bench BACKEND --json bench/results/BACKEND.json` puts them. What the figures are to reach
is written here, and nothing else of them.
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
            "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8' "
            f"orient='auto-start-reverse'><path d='M0 0L8 4L0 8z' fill='{LINE}'/></marker></defs>",
            f"<rect width='{width}' height='{height}' rx='8' fill='#ffffff'/>",
        ]

    def box(self, x, y, width, height, fill=PALE, stroke=LINE):
        self.parts.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='6' fill='{fill}' stroke='{stroke}'/>")

    def text(self, x, y, text, size=13, colour=INK, anchor="start", weight="normal"):
        self.parts.append(f"<text x='{x}' y='{y}' font-size='{size}' fill='{colour}' text-anchor='{anchor}' "
                          f"font-weight='{weight}'>{escape(text)}</text>")

    def arrow(self, *points):
        path = "M" + "L".join(f"{x} {y}" for x, y in points)
        self.parts.append(f"<path d='{path}' fill='none' stroke='{LINE}' stroke-width='1.5' marker-end='url(#tip)'/>")

    def svg(self):
        return "\n".join(self.parts) + "\n</svg>\n"


# ----------------------------------------------------------------------------------------------------------------------
# The layers

BACKEND_NAMES = {"memory": "memory", "sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL",
                 "firestore": "Firestore"}
STORES = {"memory": "this process", "sqlite": "a file", "redis": "a server", "postgres": "a server",
          "firestore": "Google Cloud"}
# What was measured, and under which conditions (run_bench in ./dev).
MEASURED_NAMES = BACKEND_NAMES | {"firestore": "Firestore emulator"}
CONDITIONS = "Redis without persistence; PostgreSQL and SQLite with an fsync per commit; Firestore is Google's emulator."


def architecture():
    backends = sorted((path.name for path in (ROOT / "src/backends").iterdir() if path.is_dir()),
                      key=list(BACKEND_NAMES).index)
    layers = {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}
    drawn = {"async", "backends", "command", "core", "locks", "net", "registry", "testing"}
    if layers != drawn:
        sys.exit(f"make.py draws the layers {sorted(drawn)}, but src/ has {sorted(layers)}")

    picture = Picture(860, 508, "The layers of SyncGuard")

    def layer(y, title, what, x=20, width=820, height=54, fill=PALE):
        picture.box(x, y, width, height, fill)
        picture.text(x + 14, y + 23, title, weight="600")
        picture.text(x + 14, y + 42, what, 12, FAINT)

    layer(20, "your code, the syncguard command, examples, bench", "include only public headers", fill="#ffffff")
    picture.arrow((430, 74), (430, 96))
    layer(98, "include/syncguard/", "Locks, Lease, options, errors · async.hpp: the Asio side · backend.hpp: what a "
          "backend is", fill="#e6f0f7")
    picture.arrow((220, 152), (220, 174))
    layer(176, "src/locks/", "acquire loop, waiting line, leases, telemetry: drives", width=400)
    layer(176, "src/core/", "keys, fences, liveness: no clock, no I/O but random numbers", x=440, width=400)
    picture.arrow((220, 230), (220, 252))
    layer(254, "include/syncguard/backend.hpp", "five operations, one atomic attempt each; a place in a key's queue",
          width=600, fill="#e6f0f7")
    layer(254, "src/registry/", "URL → backend", x=640, width=200)
    gap, width = 12, (820 - 12 * (len(backends) - 1)) / len(backends)
    for index, name in enumerate(backends):
        x = 20 + index * (width + gap)
        picture.arrow((x + width / 2, 308), (x + width / 2, 330))
        layer(332, BACKEND_NAMES[name], f"src/backends/{name}", x=x, width=width)
        picture.text(x + width / 2, 404, "↓ " + STORES[name], 12, FAINT, "middle")
    layer(424, "src/net/", "what backends with sockets share", width=400)
    layer(424, "src/async/", "wake-ups, blocking, threads, the clock of leases", x=440, width=400)
    picture.text(430, 497, "src/testing/ can stand between any backend and what is above it: fault injection", 12, FAINT,
                 "middle")
    return picture.svg()


# ----------------------------------------------------------------------------------------------------------------------
# The life of a lease

def lease_transitions():
    """The rows (state, event, next state, remark) of the table in lease_machine.hpp."""
    header = (ROOT / "src/locks/lease_machine.hpp").read_text()
    states = re.search(r"enum class State \{ ([^}]*) \}", header).group(1).split(", ")
    table = header.split("-----  ----", 1)[1].split("\n", 1)[1].split("//\n", 1)[0]
    rows, state = [], None
    for line in table.splitlines():
        columns = re.split(r" {2,}", line.removeprefix("//").strip())
        if len(columns) == 3:
            state = columns.pop(0)
        event, outcome = columns
        target, _, remark = outcome.partition(": ")
        rows.append((state, event, target, remark))
    if {row[2] for row in rows} != set(states) or {row[0] for row in rows} - set(states) != {"any"}:
        sys.exit("make.py does not understand the table in lease_machine.hpp any more")
    return rows


def lease():
    rows = lease_transitions()
    picture = Picture(860, 420, "The life of a lease")
    places = {"held": (130, 40, 410, 178), "lost": (680, 40, 160, 66), "releasing": (680, 152, 160, 66),
              "over": (680, 330, 160, 50)}
    meanings = {"held": "ownership may be assumed until the deadline", "lost": "lost() was stopped",
                "releasing": "lost() stays silent", "over": "no lock"}
    for state, (x, y, width, height) in places.items():
        picture.box(x, y, width, height, "#e6f0f7" if state == "held" else PALE, ACCENT if state == "held" else LINE)
        picture.text(x + 14, y + 23, state, 14, weight="600")
        picture.text(x + 14, y + 41, meanings[state], 12, FAINT)

    picture.arrow((20, 129), (128, 129))
    picture.text(24, 119, "granted", 12)
    picture.text(24, 147, "deadline =", 11, FAINT)
    picture.text(24, 161, "sent + remaining", 11, FAINT)

    x, y, _, _ = places["held"]
    for index, (_, event, _, remark) in enumerate(row for row in rows if row[0] == row[2] == "held"):
        picture.text(x + 14, y + 72 + 28 * index, "↻ " + event, 12)
        picture.text(x + 28, y + 86 + 28 * index, remark, 11, FAINT)

    def events(source, target):
        return [event for state, event, to, _ in rows if (state, to) == (source, target)]

    drawn = {("held", "held"), ("held", "lost"), ("held", "releasing"), ("held", "over"), ("lost", "releasing"),
             ("releasing", "releasing"), ("any", "over")}
    if {(row[0], row[2]) for row in rows} != drawn:
        sys.exit("make.py does not draw every transition of the table in lease_machine.hpp")

    picture.arrow((540, 73), (678, 73))
    for index, event in enumerate(events("held", "lost")):
        picture.text(609, 66 + 24 * index, event, 11, anchor="middle")
    picture.arrow((540, 185), (678, 185))
    for index, event in enumerate(events("held", "releasing")):
        picture.text(609, 178 + 24 * index, event, 11, anchor="middle")
    picture.arrow((820, 106), (820, 150))
    for event in events("lost", "releasing"):
        picture.text(812, 132, event, 11, anchor="end")
    for index, event in enumerate(events("releasing", "releasing")):
        picture.text(770, 236 + 14 * index, "↻ " + event, 11, FAINT, "middle")

    # From anywhere.
    for event in events("any", "over"):
        picture.text(450, 346, event, 11, anchor="middle")
    for event, remark in ((event, remark) for state, event, to, remark in rows if (state, to) == ("held", "over")):
        picture.text(230, 290, f"{event}: {remark}", 11)
    picture.arrow((220, 218), (220, 355), (678, 355))
    picture.arrow((700, 218), (700, 328))
    picture.arrow((840, 73), (852, 73), (852, 355), (842, 355))
    picture.text(20, 404, "Made from the table in src/locks/lease_machine.hpp.", 11, FAINT)
    return picture.svg()


# ----------------------------------------------------------------------------------------------------------------------
# Figures

def results():
    """What was measured, by backend, in the order of BACKEND_NAMES."""
    files = {path.stem: path for path in (ROOT / "bench/results").glob("*.json")}
    return [json.loads(files[name].read_text()) for name in BACKEND_NAMES if name in files]


def rows_of(result, group):
    return [row for row in result["rows"] if row["group"].startswith(group)]


def number(value):
    if abs(value) >= 100 or isinstance(value, int):
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


# What a figure is to reach: the group and the name of its row, the column, and how that has to compare with which limit.
# Somebody who never had a turn keeps the fairness among n at (n - 1) / n or less, so that more shows that all had some.
Target = namedtuple("Target", "backend group name column sign limit words")
CYCLES, HAND_OFFS, LEASES = "acquire + release", "hand-off", "leases that are held"
SIGNS = {"≥": operator.ge, ">": operator.gt, "≤": operator.le, "<": operator.lt, "=": operator.eq}


def ratio_of(backend, name, limit):
    return [Target(backend, CYCLES, name, "ratio", "≥", limit, f"≥ {limit}")]


def turns_of(backend, name, turns, longest_wait=None):
    targets = [Target(backend, HAND_OFFS, name, "value", "≥", turns, f"≥ {turns} turns/s"),
               Target(backend, HAND_OFFS, name, "jain", "≥", 0.95, "fairness ≥ 0.95"),
               Target(backend, HAND_OFFS, name, "time_outs", "=", 0, "no time-out")]
    if longest_wait:
        targets.append(Target(backend, HAND_OFFS, name, "longest_wait_ms", "<", longest_wait,
                              f"longest wait < {longest_wait} ms"))
    return targets


TARGETS = [
    Target("memory", CYCLES, "1 in flight, asynchronous", "microseconds_above_the_floor", "≤", 10, "at most about 10 µs above"),
    *ratio_of("sqlite", "1 blocking caller", 0.85),
    *ratio_of("sqlite", "4 processes", 0.85),
    *ratio_of("redis", "1 blocking caller", 0.85),
    *ratio_of("redis", "32 blocking threads, one client", 1.0),
    *ratio_of("redis", "256 in flight, one client, floor of 32 threads", 1.8),
    *ratio_of("postgres", "1 blocking caller", 0.85),
    *ratio_of("postgres", "10 blocking threads, one client", 0.9),
    *ratio_of("firestore", "1 blocking caller", 0.85),
    *turns_of("sqlite", "8 processes", 200, longest_wait=1000),
    *turns_of("redis", "8 threads of one client", 400),
    *turns_of("redis", "8 clients", 400),
    *turns_of("redis", "8 processes", 400, longest_wait=1000),
    *turns_of("redis", "64 processes", 400, longest_wait=1000),
    *turns_of("postgres", "8 processes", 200, longest_wait=1000),
    Target("firestore", HAND_OFFS, "4 processes", "time_outs", "=", 0, "no time-out"),
    Target("firestore", HAND_OFFS, "4 processes", "jain", ">", 0.75, "everybody has turns"),
    *(Target(backend, LEASES, "100000 held, memory each", "value", "≤", 1024, "≤ 1024 bytes") for backend in BACKEND_NAMES),
    Target("redis", LEASES, "10000 renewing, ttl 30 s, CPU of a core", "value", "≤", 5, "≤ 5 percent"),
]
# How many leases there are to be, and until how many keys and waiters growth is to be followed.
PROMISED_LEASES = {"held, memory each": 100_000, "renewing, ttl 30 s, CPU of a core": 10_000}
PROMISED_GROWTH = {"growth: a blocking cycle with other keys held": "10000 held",
                   "growth: a hand-off with more waiters on the key": "512 waiters",
                   "growth: a blocking cycle with longer keys": "512 bytes"}
# Why one was measured with less.
EXCUSES = {"firestore": "the emulator is slow"}


def targets_of(result, row):
    return [target for target in TARGETS
            if (target.backend, target.name) == (result["backend"], row["name"]) and row["group"].startswith(target.group)]


def reaches(target, value):
    return SIGNS[target.sign](value, target.limit)


def figure(result, row, column, shown=number):
    """A figure with as many digits as it takes to see on which side of its target it is."""
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
    """What the row of held leases is called that was promised; its own name if that is the one."""
    _, _, what = row["name"].partition(" ")
    return f"{PROMISED_LEASES[what]} {what}" if what in PROMISED_LEASES else row["name"]


def verdict(result, row):
    """The last two columns of a row: what is to be reached, and whether it is."""
    promised = promised_name(row)
    if row["name"] != promised:
        return ["–", "not measured as promised"]
    targets = targets_of(result, row)
    missed = [target.words for target in targets if not reaches(target, row[target.column])]
    reached = "yes" if targets else "–"
    if missed:
        reached = "**no**" if len(targets) == 1 else f"**no**: {', '.join(missed)}"
    return [", ".join(target.words for target in targets) or "–", reached]


def summary(measured):
    """Which figures miss what they are to reach, and which are not there as they were promised."""
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
            faults = [f"{figure(result, row, target.column)}, to reach {target.words}" for target in targets
                      if not reaches(target, row[target.column])]
            if faults:
                missed.append(f"{name_of(result)}, {row['name']}: {'; '.join(faults)}")
        for group, last in PROMISED_GROWTH.items():
            names = [row["name"] for row in rows_of(result, group)]
            if last not in names:
                absent.append(f"{name_of(result)}, {group.removeprefix('growth: ')}: up to {names[-1] if names else 'nothing'}, "
                              f"instead of {last}{because}")
    absent.extend(sorted({f"{MEASURED_NAMES[target.backend]}, {target.name}: not at all" for target in TARGETS
                          if (target.backend, target.name) not in found}))
    lines = ["", f"All {judged} rows that have something to reach, reach it."]
    if missed:
        lines = ["", f"Of {judged} rows that have something to reach, **{len(missed)} miss it**:", "",
                 *(f"- {one}" for one in missed)]
    if absent:
        lines.extend(["", "Not measured as promised:", "", *(f"- {one}" for one in absent)])
    return lines


def was_busy(measured):
    """Whether more ran on the machine when a benchmark began than the one before it."""
    return any(result["load_before"] > result["cores"] for result in measured)


def name_of(result):
    return MEASURED_NAMES[result["backend"]]


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
    picture = Picture(860, height, "What the benchmark found")

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
    bars(34, "One key, everybody wants it, 1 ms inside", "Turns per second. Fairness is Jain's index: 1 if all got as "
         "many turns as the others.", entries, max(entry[1] for entry in entries))
    entries = [(name_of(result), row["ratio"],
                f"{figure(result, row, 'ratio', shown_ratio)} of the floor"
                + "".join(f" ({target.words} to reach)" for target in targets_of(result, row))
                + f" · {number(row['value'])} acquire + release /s") for result, row in cycles]
    if entries:
        bars(34 + 34 * len(hand_offs) + 62, "One caller, nobody else", "Relative to the bare client library that does the "
             "same work, in the same run.", entries, max(1, *(entry[1] for entry in entries)))
    remark = f"Measured on {max(result['date'] for result in measured)}, on {measured[0]['cores']} cores"
    if was_busy(measured):
        remark += ", while other programs kept the machine busy: the fairness stands, the rest is noise"
    picture.text(20, height - 36, CONDITIONS, 12, FAINT)
    picture.text(20, height - 18, remark + ".", 12, FAINT)
    return picture.svg()


def tables():
    """The Markdown of docs/performance.md between its markers."""
    lines = []

    def table(title, header, rows):
        if rows:
            lines.extend(["", f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)])
            lines.extend("| " + " | ".join(row) + " |" for row in rows)

    measured = results()
    dates = sorted({result["date"] for result in measured})
    cores = sorted({str(result["cores"]) for result in measured})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    loads = ", ".join(f"{name_of(result)} {result['load_before']:.1f}" for result in measured)
    lines.append(f"Measured on {when}, on {' or '.join(cores)} cores, with the server beside the program.")
    lines.append(CONDITIONS)
    lines.append(f"The machine's load when each began, that of the benchmark before it included: {loads}.")
    if was_busy(measured):
        lines.append("**Other programs kept the machine busy meanwhile.** Fairness, time-outs and overlaps stand; times, rates "
                     "and ratios are noise, and wait for a quiet machine.")
    lines.extend(summary(measured))
    table("Acquire and release, nobody else wants the key",
          ["", "callers", "cycles/s", "floor", "cycles/s of the floor", "ratio", "above it, µs per cycle", "to reach", "reached"],
          [[name_of(result), row["name"], number(row["value"]), re.search(r"floor: (.*)\)", row["group"]).group(1),
            number(row["floor"]), figure(result, row, "ratio", shown_ratio),
            figure(result, row, "microseconds_above_the_floor") if "microseconds_above_the_floor" in row else "–",
            *verdict(result, row)]
           for result in measured for row in rows_of(result, CYCLES)])
    table("Hand-off: one key, everybody wants it, 1 ms inside",
          ["", "who", "turns/s", "fairness (Jain)", "longest wait", "time-outs", "overlaps", "to reach", "reached"],
          [[name_of(result), row["name"], figure(result, row, "value"), figure(result, row, "jain", shown_fairness),
            figure(result, row, "longest_wait_ms") + " ms", str(row["time_outs"]), str(row["violations"]),
            *verdict(result, row)]
           for result in measured for row in rows_of(result, HAND_OFFS)])
    table("Held leases", ["", "what", "figure", "to reach", "reached"],
          [[name_of(result), row["name"],
            "too small to measure" if number(row["value"]) == "0.00" else f"{figure(result, row, 'value')} {row['unit']}",
            *verdict(result, row)]
           for result in measured for row in rows_of(result, LEASES)])
    table("How cost grows: not faster than the work", ["", "what", "with", "figure", "times the first"],
          [[name_of(result), group.removeprefix("growth: "), row["name"], f"{number(row['value'])} {row['unit']}",
            number(row["value"] / rows_of(result, group)[0]["value"])]
           for result in measured for group in PROMISED_GROWTH for row in rows_of(result, group)])
    return "\n".join(lines)


def performance():
    page = (ROOT / "docs/performance.md").read_text()
    begin, end = "<!-- figures: made by docs/pictures/make.py -->\n", "<!-- end of the figures -->\n"
    before, rest = page.split(begin)
    after = rest.split(end)[1]
    return before + begin + tables() + "\n" + end + after


def main():
    wanted = {
        PICTURES / "architecture.svg": architecture(),
        PICTURES / "lease.svg": lease(),
        PICTURES / "bench.svg": bench(),
        ROOT / "docs/performance.md": performance(),
    }
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what docs/pictures/make.py makes: run it", file=sys.stderr)
        return 1 if stale else 0
    if sys.argv[1:]:
        sys.exit(__doc__)
    for path in stale:
        path.write_text(wanted[path])
        print(f"made {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
