// The page: hears what is new, and draws it. Nothing is decided here. Text of others is only ever text.
import { WINDOWS, axis, draw, fitting, span } from "/timeline.js";

const $ = (id) => document.getElementById(id);
/** A page that hears nothing for so long, while the server speaks every 10 s, begins anew. */
const SILENT = 25_000;
/** A page that nobody sees ends its stream after so long: without a page nothing is watched. */
const UNSEEN = 60_000;
/** Rows beyond those that are seen, so that a turn of the wheel shows no gap. */
const SPARE = 8;
/** What is described is asked for again at most so often. */
const AGAIN = 2_000;

const machines = new Map();
let head = null, skew = 0, shown = [], chosen = null, described = null, length = 0, height = 0, due = false;

// The link has the token in its fragment, which no browser sends. It is kept for this tab alone.
if (location.hash.length > 1) {
  sessionStorage.setItem("token", location.hash.slice(1));
  history.replaceState(null, "", "/");
}
addEventListener("hashchange", () => location.reload());
/** In whole seconds: between two of them no part of a timeline moves, however fast one scrolls. */
const now = () => Math.floor((Date.now() + skew) / 1000) * 1000;

function ask(path, signal) {
  const token = sessionStorage.getItem("token") ?? "";
  return fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store", signal });
}

function tell(state, live) {
  $("state").textContent = state;
  $("state").className = live ? "live" : "";
}

// ---- the stream

let stream = null;

async function follow() {
  for (let pause = 500; ; pause = Math.min(2 * pause, 8_000)) {
    stream = new AbortController();
    let silence;
    const heard = () => { clearTimeout(silence); silence = setTimeout(() => stream.abort(), SILENT); };
    try {
      heard();
      const answer = await ask("/events", stream.signal);
      if (answer.status === 401) return tell("open the link that ostler printed: this page has no valid token", false);
      if (!answer.ok) throw new Error(await answer.text());
      let rest = "";
      const texts = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let read; !(read = await texts.read()).done; ) {
        heard();
        pause = 500;
        const events = (rest + read.value).split("\n\n");
        rest = events.pop();
        for (const event of events) if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
      }
      throw new Error("the server ended the stream");
    } catch (error) {
      tell(document.hidden ? "paused" : `not live: ${error.message}; trying again`, false);
    } finally {
      clearTimeout(silence);
    }
    await new Promise((wake) => {
      setTimeout(wake, pause);
      if (document.hidden) addEventListener("visibilitychange", wake, { once: true });
    });
    while (document.hidden) await new Promise((wake) => addEventListener("visibilitychange", wake, { once: true }));
  }
}

let unseen;
addEventListener("visibilitychange", () => {
  clearTimeout(unseen);
  if (document.hidden) unseen = setTimeout(() => stream?.abort(), UNSEEN);
});

function take(update) {
  skew = update.now - Date.now();
  if (update.all) machines.clear();
  for (const key of update.gone) machines.delete(key);
  for (const [key, row] of Object.entries(update.machines)) {
    row.key = key;
    row.text = [key, row.phase, row.class, row.owner, row.node, row.wait?.what, row.steps.at(-1)?.to ? "" : row.steps.at(-1)?.what, row.failure]
      .join(" ").toLowerCase();
    machines.set(key, row);
    if (described?.key === key) describeAgain();
  }
  if (update.head) {
    head = update.head;
    tell(head.reading ? "reading" : "live", true);
    drawHead();
  }
  sift();
}

// ---- everything but the machines

function make(tag, kind, text) {
  const it = document.createElement(tag);
  if (kind) it.className = kind;
  if (text !== undefined) it.textContent = text;
  return it;
}

/** Writes a text where it is another one. */
function write(it, text) {
  if (it.textContent !== text) it.textContent = text;
}

/** One child for each item, kept by key, so that focus and selection stay. */
function list(parent, items, key, create, fill) {
  const before = new Map([...parent.children].map((it) => [it.dataset.key, it]));
  items.forEach((item, at) => {
    const name = key(item);
    const it = before.get(name) ?? create(item);
    before.delete(name);
    it.dataset.key = name;
    if (parent.children[at] !== it) parent.insertBefore(it, parent.children[at] ?? null);
    fill(it, item);
  });
  for (const it of before.values()) it.remove();
}

const plain = (parent, tag, texts) => list(parent, texts, (it) => it, () => make(tag), write);

/** An entry of a list: head, a bar for each of `bars`, lines. `act`: what a click on it does. */
function entry(act, bars, lines) {
  const li = make("li"), box = make(act ? "button" : "div", "entry"), top = make("span", "head");
  top.append(make("b"), make("span"));
  box.append(top, ...Array.from({ length: bars }, () => make("span", "meter")), ...lines.map((kind) => make("span", `line ${kind}`)));
  if (act) { box.type = "button"; box.onclick = () => act(li.item); }
  li.append(box);
  return li;
}

function fillEntry(li, item, name, state, texts) {
  li.item = item;
  const [title, right] = li.querySelector(".head").children;
  write(title, name);
  write(right, state.text);
  right.className = state.kind ?? "dim";
  li.querySelectorAll(".line").forEach((line, at) => { write(line, texts[at] ?? ""); line.hidden = !texts[at]; });
}

/** Parts of a bar: class, from and to of the whole; a mark has one place. */
function meter(bar, whole, parts, says) {
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", says);
  bar.title = says;
  while (bar.children.length > parts.length) bar.lastChild.remove();
  while (bar.children.length < parts.length) bar.append(make("i"));
  parts.forEach(([kind, from, to], at) => {
    const it = bar.children[at];
    it.className = kind;
    it.style.left = `${100 * from / whole}%`;
    it.style.width = kind === "mark" ? "" : `${100 * (to - from) / whole}%`;
  });
}

function drawHead() {
  write($("cluster"), `${head.cluster} · ${head.namespace ? `namespace ${head.namespace}` : "all namespaces"}`);
  const api = head.api?.Err ? [`API server: ${head.api.Err}`] : [];
  plain($("notes"), "p", [...new Set([...api, ...head.lacks, ...head.unserved])]);
  const phases = Object.entries(head.phases);
  const all = phases.reduce((sum, [, number]) => sum + number, 0);
  list($("phases"), [["", all], ...phases], ([phase]) => phase || "all", () => {
    const li = make("li"), button = make("button");
    button.append(make("b"), make("span"));
    button.onclick = () => filterBy(li.phase);
    li.append(button);
    return li;
  }, (li, [phase, number]) => {
    li.phase = phase;
    write(li.querySelector("b"), String(number));
    write(li.querySelector("span"), phase || (number === 1 ? "machine" : "machines"));
  });
  drawWaits(all);
  drawDrivers();
  drawOrphans();
  drawFleet();
}

function drawWaits(all) {
  const waiting = head.waits.reduce((sum, it) => sum + it.machines, 0);
  write($("waiting"), waiting ? `${waiting} of ${all} machines` : head.reading ? "" : "nothing waits");
  list($("waits"), head.waits, (it) => it.reason, () => entry((it) => filterBy(it.reason), 1, ["dim", "dim", "hint"]), (li, it) => {
    const since = it.since ? `for ${span(now() - Date.parse(it.since))}` : "";
    const oldest = `longest: ${it.namespace}/${it.oldest} ${since}`;
    fillEntry(li, it, it.reason, { text: String(it.machines) }, [oldest, it.message, it.hint]);
    meter(li.querySelector(".meter"), Math.max(all, 1), [["alike", 0, it.machines]], `${it.machines} of ${all} machines wait for ${it.reason}`);
  });
}

function drawDrivers() {
  const all = head.drivers?.Ok ?? [];
  list($("drivers"), all, (it) => it.session, () => entry(null, 1, ["dim"]), (li, it) => {
    const state = [it.readiness, it.role === "standby" ? "standby" : ""].filter(Boolean).join(", ");
    fillEntry(li, it, it.provider, { text: state, kind: it.readiness === "ready" ? "good" : "warn" },
      [`${it.inFlight} of ${it.credit} busy · ${it.queued} queued · heartbeat ${it.heartbeat} ago · ${it.program}`]);
    meter(li.querySelector(".meter"), Math.max(it.credit, 1), [["busy", 0, Math.min(it.inFlight, it.credit)]],
      `${it.inFlight} of ${it.credit} operations in flight`);
  });
  const none = head.drivers?.Err ? [`not known: ${head.drivers.Err}`] : head.drivers && !all.length ? ["none is connected"] : [];
  plain($("unanswered"), "li", [...none, ...head.unanswered]);
  plain($("cores"), "li", head.api && !head.cores.length ? ["none is seen"] : head.cores);
}

function drawOrphans() {
  const found = head.orphans?.Ok;
  const why = head.orphans?.Err ?? head.drivers?.Err;
  write($("orphans"), found ? `${found.number || "none"}${found.held ? `; only reported: ${found.held}` : ""}` : why ? `not known: ${why}` : "");
  const table = found?.number ? [found.table.heading.map((it) => it.toLowerCase()), ...found.table.rows] : [];
  list($("orphan-table"), table.map((cells, at) => ({ cells, at })), (it) => String(it.at), () => make("tr"), (tr, { cells, at }) => {
    list(tr, cells.map((text, column) => ({ text, column })), (it) => String(it.column), () => make(at ? "td" : "th"), (td, it) => write(td, it.text || "–"));
  });
}

function drawFleet() {
  write($("fleet-number"), head.fleet.length ? String(head.fleet.length) : head.reading ? "" : "none");
  const name = (it) => `${it.kind}/${it.name}`;
  list($("fleet"), head.fleet, (it) => `${it.namespace}/${name(it)}`, () => entry((it) => describe(it.kind, it.namespace, it.name), 2, ["dim"]), (li, it) => {
    const kind = { Complete: "good", Failed: "bad-text" }[it.state] ?? "warn";
    const several = new Set(head.fleet.map((other) => other.namespace)).size > 1;
    const wanted = it.wanted ?? it.all, whole = Math.max(it.most ?? 0, it.all, wanted, 1);
    const fresh = it.all - it.old;
    const limits = it.most === null ? "" : ` · at most ${it.most}, at least ${it.least} available`;
    fillEntry(li, it, several ? `${it.namespace} · ${name(it)}` : name(it), { text: it.progress, kind },
      [`${it.old ? `${fresh} new, ${it.old} old` : `${it.all} machines`} · ${it.available} of ${wanted} available${limits}${it.about ? ` · ${it.about}` : ""}`]);
    const [above, below] = li.querySelectorAll(".meter");
    meter(above, whole, [["new", 0, fresh], ["old", fresh, it.all], ["mark", wanted]], `${fresh} new machines, ${it.old} old ones, ${wanted} wanted`);
    meter(below, whole, [["available", 0, it.available], ...(it.least === null ? [] : [["mark", it.least]])],
      `${it.available} machines available${it.least === null ? "" : `, at least ${it.least} are to be`}`);
  });
}

// ---- the machines

function filterBy(text) {
  $("filter").value = text;
  sift();
  $("of-machines").scrollIntoView({ block: "start" });
}

/** Chooses and orders the machines that are shown: those on which something goes on first. */
function sift() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  shown = [...machines.values()].filter((it) => words.every((word) => it.text.includes(word)));
  shown.sort((a, b) => a.rests - b.rests || (a.key < b.key ? -1 : 1));
  const all = machines.size === shown.length ? String(shown.length) : `${shown.length} of ${machines.size}`;
  write($("machines-number"), !head?.reading ? all : machines.size ? `${all} so far` : "");
  fit();
}

/** How much is shown: of time, and of each machine. */
function fit() {
  length = Number($("window").value) || fitting(shown, now());
  height = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
  redraw();
}

function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; drawRows(); });
}

function drawRows() {
  const box = $("rows");
  box.style.height = `${Math.max(shown.length, 1) * height}px`;
  const time = now();
  axis(document.querySelector(".tools .track"), time - length, time, true);
  const above = box.getBoundingClientRect().top;
  // As many as fit, whatever is scrolled to: the element of a row that leaves takes one that comes.
  const room = Math.ceil(innerHeight / height) + 2 * SPARE;
  const first = Math.max(0, Math.min(shown.length - room, Math.floor(-above / height) - SPARE));
  const visible = shown.slice(first, first + room).map((row, at) => ({ row, at: first + at, slot: (first + at) % room }));
  visible.sort((a, b) => a.slot - b.slot);
  // The chosen one stays where assistive technology finds it, wherever it is.
  const at = shown.findIndex((it) => it.key === chosen);
  if (at >= 0 && (at < first || at >= first + room)) visible.push({ row: shown[at], at, slot: room });
  list(box, visible, (it) => String(it.slot), () => {
    const it = make("div", "row");
    it.append(make("span", "name"), make("span", "state"), make("span", "track"));
    it.setAttribute("role", "option");
    it.onclick = () => { choose(it.row.key); describe("machine", ...it.row.key.split("/")); };
    return it;
  }, (it, { row, at }) => {
    const [name, state, track] = it.children;
    it.row = row;
    it.style.top = `${at * height}px`;
    it.id = `row-${at}`;
    it.setAttribute("aria-posinset", at + 1);
    it.setAttribute("aria-setsize", shown.length);
    it.setAttribute("aria-selected", row.key === chosen);
    write(name, head?.namespace || machines.size === 0 ? row.name : row.key.replace(/^default\//, ""));
    name.title = row.key;
    const [text, kind] = stateOf(row, time);
    write(state, text);
    state.title = row.wait?.said ?? row.failure ?? text;
    state.className = `state ${kind}`;
    draw(track, row, time - length, time, time);
  });
  if (at >= 0) box.setAttribute("aria-activedescendant", `row-${at}`);
  else box.removeAttribute("aria-activedescendant");
  if (!shown.length) box.replaceChildren(Object.assign(make("p", "", machines.size ? "no machine fits the filter" : head?.reading === false ? "there are no machines" : ""), { id: "empty" }));
  if (described?.kind === "machine") drawSheet(time);
}

function stateOf(row, time) {
  const step = row.steps.at(-1), busy = step && !step.to ? step : null;
  const since = (it) => (it?.from ? ` ${span(time - it.from)}` : "");
  if (row.wait) return [`${row.wait.what}${since(row.wait)}`, row.failure ? "bad-text" : "warn"];
  if (row.failure) return [row.failure, "bad-text"];
  if (busy) return [`${busy.what}${since(busy)}`, ""];
  return [row.phase, row.rests ? "good" : ""];
}

function choose(key) {
  chosen = key;
  redraw();
}

/** Moves the choice, and shows it. */
function move(to) {
  if (!shown.length) return;
  const at = Math.min(shown.length - 1, Math.max(0, to(shown.findIndex((it) => it.key === chosen))));
  choose(shown[at].key);
  const box = $("rows").getBoundingClientRect(), height = box.height / shown.length;
  const top = box.top + at * height, tools = document.querySelector(".tools").offsetHeight;
  if (top < tools) scrollBy(0, top - tools);
  else if (top + height > innerHeight) scrollBy(0, top + height - innerHeight);
  if (described?.kind === "machine") describe("machine", ...chosen.split("/"));
}

// ---- what is described

function describe(kind, namespace, name) {
  described = { kind, namespace, name, key: kind === "machine" ? `${namespace}/${name}` : null, last: 0 };
  write($("sheet-name"), `${kind} ${namespace}/${name}`);
  write($("description"), "");
  $("sheet-time").hidden = $("sheet-axis").hidden = kind !== "machine";
  if ($("sheet").hidden) { $("sheet").hidden = false; described.from = document.activeElement; }
  describeAgain();
  redraw();
}

async function describeAgain() {
  const wanted = described;
  if (!wanted || wanted.asked) return;
  wanted.asked = true;
  await new Promise((wake) => setTimeout(wake, Math.max(0, wanted.last + AGAIN - Date.now())));
  try {
    const answer = described === wanted && await ask(`/describe/${wanted.kind}/${wanted.namespace}/${wanted.name}`);
    if (answer && described === wanted) write($("description"), await answer.text());
  } catch (error) {
    if (described === wanted) write($("description"), `not known: ${error.message}`);
  }
  wanted.asked = false;
  wanted.last = Date.now();
}

function drawSheet(time) {
  const row = machines.get(described.key);
  const from = row?.created ?? time - length, to = Math.max(time, from + 1000);
  draw($("sheet-time"), row, from, to, time);
  axis($("sheet-axis"), from, to, false);
}

function close() {
  $("sheet").hidden = true;
  described = null;
  $("rows").focus({ preventScroll: true });
}

// ---- hands

const acts = {
  j: () => move((at) => at + 1), ArrowDown: () => move((at) => at + 1),
  k: () => move((at) => at - 1), ArrowUp: () => move((at) => at - 1),
  Home: () => move(() => 0), End: () => move(() => shown.length - 1),
  Enter: () => chosen && describe("machine", ...chosen.split("/")),
  "/": () => { $("filter").focus(); $("filter").select(); },
  w: () => { const select = $("window"); select.selectedIndex = (select.selectedIndex + 1) % select.length; fit(); },
  "?": () => $("keys").showModal(),
  Escape: () => (described ? close() : filterBy("")),
};

addEventListener("keydown", (event) => {
  const at = event.target, writing = at.matches("input, select");
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  if (at.id === "filter" && ["Enter", "ArrowDown"].includes(event.key)) { $("rows").focus({ preventScroll: true }); event.preventDefault(); return move(() => 0); }
  if (at.id === "filter" && event.key === "Escape" && at.value === "") return at.blur();
  if (writing && event.key !== "Escape" || at.matches("button") && event.key === "Enter") return;
  if (at.id === "description" && event.key !== "Escape" || !acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
});
$("filter").addEventListener("input", sift);
$("help").onclick = () => $("keys").showModal();
$("close").onclick = close;
for (const [name, value] of [["fit", 0], ...WINDOWS]) $("window").append(Object.assign(make("option", "", name), { value }));
$("window").addEventListener("change", fit);
addEventListener("resize", fit);
addEventListener("scroll", redraw, { passive: true });
// Times go on though nothing happens.
setInterval(() => { if (document.hidden || !head) return; fit(); drawWaits(machines.size); }, 1000);
follow();
