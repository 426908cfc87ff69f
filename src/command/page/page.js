"use strict";
// Shows the locks of a store, live. The server sends the whole state, then every change (server-sent events, read with
// fetch so that the token can be a header). All text from the server is set as text, never as markup.

const rowsPerPage = 100;
const changesShown = 100;
const keptChanges = 1000;
const soonMs = 5000;

const byId = (id) => document.getElementById(id);
const state = {
  locks: new Map(), changes: [], findings: [], total: 0, backend: "", canBreak: false, received: false,
  // The store's time minus this page's clock, in milliseconds.
  offset: 0,
};
const view = { order: "key", descending: false, filter: "", page: 0, open: new Set() };
const token = {
  get: () => sessionStorage.getItem("token") ?? "",
  set: (value) => sessionStorage.setItem("token", value),
};

// ---------------------------------------------------------------------------------------------------------------------
// Small helpers

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// The store's time now.
const storeNow = () => performance.now() + state.offset;

function duration(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (number) => String(number).padStart(2, "0");
  if (seconds >= 86400) return `${Math.floor(seconds / 86400)}d ${two(Math.floor(seconds % 86400 / 3600))}h`;
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)}h ${two(Math.floor(seconds % 3600 / 60))}m`;
  if (seconds >= 60) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
  return `${seconds}s`;
}

const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const count = (number) => number.toLocaleString("en-US");
// Characters that are invisible, or change the order of the text around them, are shown as their code.
const visible = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
  (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
const holderName = (holder) => holder ? visible(holder) : "unknown";

// ---------------------------------------------------------------------------------------------------------------------
// The table

const comparisons = {
  key: (a, b) => a.key < b.key ? -1 : a.key > b.key ? 1 : 0,
  holder: (a, b) => a.holder < b.holder ? -1 : a.holder > b.holder ? 1 : 0,
  held: (a, b) => a.acquiredAtMs - b.acquiredAtMs,
  left: (a, b) => a.expiresAtMs - b.expiresAtMs,
  waiters: (a, b) => (b.waiters ?? -1) - (a.waiters ?? -1),
};

function chosenLocks() {
  const wanted = view.filter.toLowerCase();
  const chosen = [...state.locks.values()].filter((lock) =>
    !wanted || lock.key.toLowerCase().includes(wanted) || lock.holder.toLowerCase().includes(wanted));
  const compare = comparisons[view.order];
  const sign = view.descending ? -1 : 1;
  return chosen.sort((a, b) => sign * compare(a, b) || comparisons.key(a, b));
}

function makeRow(lock) {
  const cell = (label, ...children) => element("td", { role: "cell", "data-label": label }, ...children);
  const key = element("button", { type: "button", className: "key" });
  key.setAttribute("aria-expanded", "false");
  key.addEventListener("click", () => toggle(lock.key));
  const meter = () => element("div", { className: "meter", "aria-hidden": "true" }, element("div"));
  return element("tr", { role: "row" },
    cell("Key", key),
    cell("Holder", element("span")),
    cell("Held for", element("div", {}, element("span"), meter())),
    cell("Expires in", element("div", {}, element("span"), meter())),
    cell("Waiting", element("span")));
}

function fillRow(row, lock, now, oldestMs) {
  const [key, holder, held, left, waiting] = row.cells;
  setText(key.firstChild, visible(lock.key));
  key.firstChild.setAttribute("aria-expanded", String(view.open.has(lock.key)));
  setText(holder.firstChild, holderName(lock.holder));
  holder.firstChild.className = lock.holder ? "" : "dim";
  const heldMs = now - lock.acquiredAtMs;
  const leftMs = lock.expiresAtMs - now;
  const fill = (cell, text, part) => {
    setText(cell.firstChild.firstChild, text);
    cell.firstChild.lastChild.firstChild.style.width = `${Math.round(100 * Math.min(1, Math.max(0, part)))}%`;
  };
  // On a logarithmic scale: seconds and days are on one page.
  fill(held, duration(heldMs), Math.log1p(Math.max(heldMs, 0) / 1000) / Math.log1p(Math.max(oldestMs, 1000) / 1000));
  fill(left, leftMs > 0 ? duration(leftMs) : "expired, kept for clock tolerance", leftMs / lock.ttlMs);
  left.className = leftMs <= 0 ? "expired" : leftMs < soonMs ? "soon" : "";
  setText(waiting.firstChild, lock.waiters === null ? "–" : String(lock.waiters));
}

const rows = new Map();     // key → row
const details = new Map();  // key → row below it

function toggle(key) {
  if (!view.open.delete(key)) view.open.add(key);
  render();
}

// Puts exactly these nodes into the parent, moving as few as possible, so that the focus stays where it is.
function place(parent, wanted) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const kept = new Set(wanted);
  for (const node of [...parent.childNodes]) if (!kept.has(node)) node.remove();
  let next = parent.firstChild;
  for (const node of wanted) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  // A node that was moved has lost it.
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

function renderTable(now) {
  const chosen = chosenLocks();
  const pages = Math.max(1, Math.ceil(chosen.length / rowsPerPage));
  view.page = Math.min(view.page, pages - 1);
  const first = view.page * rowsPerPage;
  const shown = chosen.slice(first, first + rowsPerPage);
  const oldestMs = Math.max(0, ...shown.map((lock) => now - lock.acquiredAtMs));

  const wanted = [];
  const keys = new Set(shown.map((lock) => lock.key));
  for (const map of [rows, details]) for (const key of map.keys()) if (!keys.has(key)) map.delete(key);
  for (const lock of shown) {
    if (!rows.has(lock.key)) rows.set(lock.key, makeRow(lock));
    fillRow(rows.get(lock.key), lock, now, oldestMs);
    wanted.push(rows.get(lock.key));
    if (view.open.has(lock.key)) {
      if (!details.has(lock.key)) details.set(lock.key, makeDetails(lock.key));
      fillDetails(details.get(lock.key), lock, now);
      wanted.push(details.get(lock.key));
    }
  }
  place(byId("locks").tBodies[0], wanted);

  byId("empty").hidden = shown.length > 0 || !state.received;
  setText(byId("empty"), view.filter ? "No lock matches the filter." : "No locks are held.");
  byId("pages").hidden = pages === 1;
  setText(byId("range"), `${count(first + 1)}–${count(first + shown.length)} of ${count(chosen.length)}`);
  byId("previous").disabled = view.page === 0;
  byId("next").disabled = view.page === pages - 1;
}

// ---------------------------------------------------------------------------------------------------------------------
// The details of a lock: its fence, its history

function makeDetails(key) {
  const cell = element("td", { role: "cell", colSpan: 5 },
    element("div", { className: "facts" }),
    element("div", { className: "strip", role: "img" }),
    element("ol", { className: "timeline" }));
  if (state.canBreak) {
    const button = element("button", { type: "button", className: "danger" }, "Break this lock…");
    button.addEventListener("click", () => askToBreak(key));
    cell.append(button);
  }
  return element("tr", { role: "row", className: "details" }, cell);
}

function fillDetails(row, lock, now) {
  const [facts, strip, timeline] = row.firstChild.children;
  setText(facts, `Fence ${lock.fence} · since ${new Date(lock.acquiredAtMs).toLocaleString()} · until ` +
    `${new Date(lock.expiresAtMs).toLocaleString()} unless it is extended`);

  const changes = state.changes.filter((change) => change.key === lock.key);
  // The times at which each holder had the lock.
  const spans = [];
  for (const change of changes) {
    if (change.previousFence && spans.length > 0) spans[spans.length - 1].end = change.atMs;
    if (change.fence) spans.push({ start: change.atMs, end: now, holder: change.holder });
  }
  if (spans.length === 0) spans.push({ start: lock.acquiredAtMs, end: now, holder: lock.holder });
  const start = spans[0].start;
  const whole = Math.max(now - start, 1);
  while (strip.children.length > spans.length) strip.lastChild.remove();
  spans.forEach((span, index) => {
    const part = strip.children[index] ?? strip.appendChild(element("div"));
    part.className = index % 2 ? "other" : "";
    part.title = `${holderName(span.holder)}: ${duration(span.end - span.start)}`;
    part.style.left = `${100 * (span.start - start) / whole}%`;
    part.style.width = `${100 * (span.end - span.start) / whole}%`;
  });
  strip.setAttribute("aria-label", `Holders in the last ${duration(whole)}: ` +
    spans.map((span) => `${holderName(span.holder)} for ${duration(span.end - span.start)}`).join(", "));

  const newest = changes.slice(-10).reverse();
  place(timeline, newest.map((change) => changeItem(change)));
}

const items = new WeakMap();

function changeItem(change, withKey = false) {
  const made = items.get(change) ?? [];
  items.set(change, made);
  const index = Number(withKey);
  if (!made[index]) {
    const key = withKey ? `${visible(change.key)}: ` : "";
    const was = change.previousFence ? holderName(change.previousHolder) : "";
    const is = change.fence ? holderName(change.holder) : "";
    const text = is && was ? `passed from ${was} to ${is}` : is ? `acquired by ${is}` : `became free, was held by ${was}`;
    made[index] = element("li", {}, element("time", { dateTime: new Date(change.atMs).toISOString() }, clock(change.atMs)),
      ` ${key}${text}`);
  }
  return made[index];
}

// ---------------------------------------------------------------------------------------------------------------------
// The rest of the page

function renderSummary(now) {
  setText(byId("total"), state.received ? count(state.total) : "–");
  let waiting = null;
  let oldest = null;
  for (const lock of state.locks.values()) {
    if (lock.waiters !== null) waiting = (waiting ?? 0) + lock.waiters;
    oldest = Math.min(oldest ?? lock.acquiredAtMs, lock.acquiredAtMs);
  }
  setText(byId("waiting"), waiting === null ? (state.locks.size > 0 ? "unknown" : state.received ? "0" : "–") : count(waiting));
  setText(byId("oldest"), oldest === null ? "–" : duration(now - oldest));
  const leftOut = state.total - state.locks.size;
  byId("left-out").hidden = leftOut <= 0;
  setText(byId("left-out"), `${count(Math.max(leftOut, 0))} more locks are not shown. Start the server with a prefix to see others.`);
}

function renderChanges() {
  const wanted = view.filter.toLowerCase();
  const shown = state.changes.filter((change) => !wanted || change.key.toLowerCase().includes(wanted))
    .slice(-changesShown).reverse();
  place(byId("changes"), shown.map((change) => changeItem(change, true)));
  byId("no-changes").hidden = shown.length > 0;
  setText(byId("no-changes"), wanted && state.changes.length > 0 ? "None matches the filter." : "None since this server started.");
}

function renderFindings(checkedAtMs) {
  const item = (finding) => element("li", {},
    element("span", { className: `verdict ${finding.verdict}` }, finding.verdict),
    ` ${finding.check}: ${visible(finding.found)}${finding.advice ? `; ${visible(finding.advice)}` : ""}`);
  const bad = state.findings.filter((finding) => finding.verdict !== "fine");
  const fine = state.findings.filter((finding) => finding.verdict === "fine");
  const failures = bad.filter((finding) => finding.verdict === "failure");
  byId("findings").replaceChildren(...[...failures, ...bad.filter((finding) => !failures.includes(finding))].map(item));
  byId("fine").hidden = fine.length === 0;
  setText(byId("fine").querySelector("summary"), `${fine.length} ${fine.length === 1 ? "check is" : "checks are"} fine`);
  byId("fine").querySelector("ul").replaceChildren(...fine.map(item));
  setText(byId("checked"), checkedAtMs ? `Checked at ${clock(checkedAtMs)}` : "Not checked yet");
  const health = state.findings.length === 0 ? "–" : failures.length > 0 ? "failure" : bad.length > 0 ? "warning" : "fine";
  setText(byId("health"), health);
  byId("health").className = health;
}

function showProblem(problem) {
  byId("problem").hidden = !problem;
  setText(byId("problem"), problem ? `The store cannot be read, so this may be outdated: ${visible(problem)}` : "");
}

function connectionIs(name, text) {
  byId("connection").dataset.state = name;
  setText(byId("connection"), text);
}

function renderOrder() {
  for (const button of document.querySelectorAll("th button")) {
    if (button.dataset.order !== view.order) button.parentElement.removeAttribute("aria-sort");
    else button.parentElement.setAttribute("aria-sort", view.descending ? "descending" : "ascending");
  }
  byId("order").value = view.order;
}

function render() {
  const now = storeNow();
  renderTable(now);
  renderSummary(now);
}

// ---------------------------------------------------------------------------------------------------------------------
// Events from the server

// The longest time left that was seen, which is close to the ttl, is what the bar of the time left shows as full.
function setLock(lock) {
  const before = state.locks.get(lock.key);
  const leftMs = lock.expiresAtMs - storeNow();
  lock.ttlMs = Math.max(leftMs, before?.fence === lock.fence ? before.ttlMs : 1);
  state.locks.set(lock.key, lock);
}

function setClock(nowMs) {
  state.offset = nowMs - performance.now();
}

const handlers = {
  // Sent before the state, and as a heartbeat.
  clock(data) {
    if (data.nowMs > 0) setClock(data.nowMs);
  },
  state(data) {
    // Before its first scan, the server knows no number.
    state.received = data.total !== null;
    Object.assign(state, { total: data.total ?? 0, backend: data.backend, canBreak: data.canBreak, findings: data.findings });
    const keys = new Set(data.locks.map((lock) => lock.key));
    for (const key of state.locks.keys()) if (!keys.has(key)) state.locks.delete(key);
    data.locks.forEach(setLock);
    state.changes = data.changes;
    setText(byId("store"), `on ${data.backend}${data.prefix ? `, keys that begin with ${visible(data.prefix)}` : ""}`);
    showProblem(data.problem);
    renderFindings(data.checkedAtMs);
    renderChanges();
    render();
  },
  update(data) {
    state.received = true;
    state.total = data.total;
    setClock(data.nowMs);
    data.set.forEach(setLock);
    for (const key of data.removed) state.locks.delete(key);
    showProblem(data.problem);
    if (data.changes.length > 0) {
      state.changes = [...state.changes, ...data.changes].slice(-keptChanges);
      renderChanges();
    }
    render();
  },
  findings(data) {
    state.findings = data.findings;
    renderFindings(data.checkedAtMs);
  },
  problem(data) {
    showProblem(data.problem);
  },
};

function handleMessage(text) {
  let name = "";
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data && handlers[name]) handlers[name](JSON.parse(data));
}

const authorization = () => token.get() ? { Authorization: `Bearer ${token.get()}` } : {};

async function readEvents() {
  // Ends a stream that is silent although the server sends heartbeats.
  const abort = new AbortController();
  let silence;
  const expectMore = () => {
    clearTimeout(silence);
    silence = setTimeout(() => abort.abort(), 30000);
  };
  expectMore();
  try {
    const response = await fetch("/api/events", { headers: authorization(), cache: "no-store", signal: abort.signal });
    if (response.headers.has("WWW-Authenticate")) return await signIn(response.status);
    if (!response.ok) throw new Error((await response.text()).trim());
    connectionIs("live", "Live");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let parts = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      expectMore();
      parts.push(value);
      // Data has no line breaks of its own: without one, no message is complete.
      if (!value.includes("\n")) continue;
      const messages = parts.join("").split("\n\n");
      parts = [messages.pop()];
      messages.forEach(handleMessage);
    }
  } finally {
    clearTimeout(silence);
    abort.abort();
  }
}

async function follow() {
  let pause = 500;
  for (;;) {
    const start = performance.now();
    try {
      await readEvents();
    } catch (error) {
      connectionIs("lost", "Not connected; trying again");
      console.warn(error);
    }
    // A stream that worked ends now and then; try again at once. Otherwise more and more slowly.
    pause = performance.now() - start > 10000 ? 500 : Math.min(2 * pause, 10000);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function signIn(status) {
  connectionIs("lost", "Needs a token");
  const error = status === 429 ? "Too many wrong tokens. Wait a moment." : token.get() ? "This token is wrong." : "";
  setText(byId("sign-in-error"), error);
  byId("token").value = "";
  const dialog = byId("sign-in");
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    const given = byId("token").value.trim();
    // Other characters cannot be sent in a header.
    if (given) token.set(given.replace(/[^\x21-\x7e]/g, "?"));
    resolve();
  }, { once: true }));
}

// ---------------------------------------------------------------------------------------------------------------------
// Breaking a lock

let breaking = null;

function askToBreak(key) {
  breaking = state.locks.get(key);
  if (!breaking) return;
  setText(byId("break-text"), `${visible(breaking.key)}, held by ${holderName(breaking.holder)} with the fence ${breaking.fence}`);
  setText(byId("break-error"), "");
  byId("break").showModal();
}

async function breakLock() {
  const asked = breaking;
  const { key, fence } = asked;
  byId("break-confirm").disabled = true;
  let message = "";
  try {
    const response = await fetch("/api/break", {
      method: "POST", headers: { ...authorization(), "Content-Type": "application/json" }, body: JSON.stringify({ key, fence }),
    });
    if (!response.ok) message = (await response.text()).trim();
    else if (!(await response.json()).ok) message = "The lock was released in the meantime.";
  } catch (error) {
    message = String(error);
  }
  byId("break-confirm").disabled = false;
  // The dialog may show another lock by now.
  if (asked !== breaking) return;
  if (message) setText(byId("break-error"), message);
  else byId("break").close();
}

// ---------------------------------------------------------------------------------------------------------------------

function sortBy(order) {
  view.descending = view.order === order && !view.descending;
  view.order = order;
  view.page = 0;
  renderOrder();
  render();
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.dataset.order));
}
byId("order").addEventListener("change", (event) => {
  view.descending = false;
  view.order = event.target.value;
  view.page = 0;
  renderOrder();
  render();
});
byId("filter").addEventListener("input", (event) => {
  view.filter = event.target.value;
  view.page = 0;
  render();
  renderChanges();
});
const turnPage = (step) => {
  view.page += step;
  render();
  byId("locks").scrollIntoView({ block: "nearest" });
};
byId("previous").addEventListener("click", () => turnPage(-1));
byId("next").addEventListener("click", () => turnPage(1));
byId("break-confirm").addEventListener("click", breakLock);
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  byId("filter").focus();
});

renderOrder();
setInterval(() => { if (!document.hidden && state.received) render(); }, 1000);
follow();
