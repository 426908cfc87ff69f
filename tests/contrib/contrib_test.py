#!/usr/bin/env python3
"""Checks contrib/ against the text of syncguard::Metrics, which a program prints.

contrib_test.py text PROGRAM          the text passes `promtool check metrics`
contrib_test.py rules PROGRAM FOLDER  the alert rules are valid, pass their tests, and use only metrics and labels of the text
contrib_test.py dashboard PROGRAM FOLDER  the same for the queries of the dashboard
contrib_test.py documented PROGRAM PAGE   the page describes exactly the metrics of the text
contrib_test.py --self-test           the checks find mistakes
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

# Prometheus adds these.
TARGET_LABELS = {"job", "instance"}


def run(*command, **options):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed (promtool is in Debian's package prometheus)")
    if done.returncode != 0 or "FAILED" in done.stdout:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


class Text:
    """The metrics in a text: for each sample's name its labels."""

    def __init__(self, text):
        self.metrics = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        self.labels = {}
        for name, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", text, re.MULTILINE):
            self.labels.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
        # Not every backend has every gauge. All metrics have this label.
        for name in re.findall(r"^# TYPE (\S+) gauge", text, re.MULTILINE):
            self.labels.setdefault(name, {"backend"})

    def complaints_about(self, query):
        """What is wrong with a PromQL query, or with Grafana's label_values(SELECTOR, LABEL)."""
        names = re.findall(r"\bsyncguard_\w+", query)
        if not names:
            yield f"no metric of ours in: {query}"
        known = set(TARGET_LABELS)
        for name in names:
            if name not in self.labels:
                yield f"{name} does not exist, in: {query}"
            known |= self.labels.get(name, set())
        for name, selector in re.findall(r"\b(syncguard_\w+)\{([^}]*)\}", query):
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
                if label not in self.labels.get(name, set()) | TARGET_LABELS:
                    yield f"{name} has no label {label}, in: {query}"
        lists = re.findall(r"\b(?:by|without|on|group_left)\s*\(([^)]*)\)", query)
        lists += re.findall(r"label_values\(.*,([^)]*)\)", query)
        for label in re.findall(r"\w+", " ".join(lists)):
            if label not in known:
                yield f"no label {label}, in: {query}"


def queries_of_rules(folder):
    # Python comes without a YAML reader. promtool has checked the syntax.
    text = (folder / "syncguard.rules.yml").read_text()
    found = re.findall(r"^ +expr: (?:\|\n((?: {10,}.*\n)+)|(.*)\n)", text, re.MULTILINE)
    if len(found) != text.count("- alert:"):
        sys.exit("not every alert has an expression")
    return [block or line for block, line in found]


def queries_of_dashboard(folder):
    dashboard = json.loads((folder / "syncguard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    if not panels or len(ids) != len(set(ids)):
        sys.exit("the dashboard has no panels, or two with the same id")
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    return queries + [v["definition"] for v in dashboard["templating"]["list"] if v["type"] == "query"]


def check_syntax(queries):
    """Checks Grafana's queries as the expressions of rules. JSON is YAML."""
    rules = [{"record": f"query{i}", "expr": q.replace("$__rate_interval", "5m")} for i, q in enumerate(queries)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        run("promtool", "check", "rules", file.name)


def require(complaints):
    complaints = list(complaints)
    if complaints:
        sys.exit("\n".join(complaints))


def self_test():
    text = Text('# TYPE syncguard_a_total counter\nsyncguard_a_total{backend="x",result="ok"} 1\n')
    for good in ('rate(syncguard_a_total{result="ok"}[5m])', "sum by (job, backend) (syncguard_a_total)",
                 "label_values(syncguard_a_total, backend)"):
        require(text.complaints_about(good))
    for bad in ("syncguard_b_total", 'syncguard_a_total{key="x"}', "sum by (key) (syncguard_a_total)", "up",
                "label_values(syncguard_a_total, key)"):
        if not list(text.complaints_about(bad)):
            sys.exit(f"not found: {bad}")


def main(what, program=None, path=None):
    if what == "--self-test":
        return self_test()
    output = run(program)
    text = Text(output)
    if not text.metrics:
        sys.exit("the program printed no metrics")
    folder = pathlib.Path(path or ".")
    if what == "text":
        complaints = run("promtool", "check", "metrics", input=output)
        if complaints.strip():
            sys.exit(complaints)
    elif what == "rules":
        run("promtool", "check", "rules", folder / "syncguard.rules.yml")
        run("promtool", "test", "rules", folder / "syncguard.test.yml")
        require(c for query in queries_of_rules(folder) for c in text.complaints_about(query))
    elif what == "dashboard":
        queries = queries_of_dashboard(folder)
        check_syntax(query for query in queries if not query.startswith("label_values("))
        require(c for query in queries for c in text.complaints_about(query))
        shown = {re.sub(r"_(bucket|sum|count)$", "", name) for q in queries for name in re.findall(r"syncguard_\w+", q)}
        require(f"the dashboard does not show {name}" for name in sorted(text.metrics - shown))
    elif what == "documented":
        page = folder.read_text()
        documented = set(re.findall(r"^\| `(syncguard_\w+)", page, re.MULTILINE))
        require(f"{folder.name} and the text differ in {name}" for name in sorted(documented ^ text.metrics))
    else:
        sys.exit(__doc__)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
