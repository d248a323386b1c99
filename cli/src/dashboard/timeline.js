// Draws times: parts of a track, the labels of an axis, and how long something took.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

/** How much time the timelines may show. */
export const WINDOWS = [["1 min", MINUTE], ["5 min", 5 * MINUTE], ["15 min", 15 * MINUTE], ["1 h", HOUR], ["6 h", 6 * HOUR], ["1 day", DAY], ["7 days", 7 * DAY]];

const STAGES = {
  making: ["CreateInstance", "InitializeInstance"],
  joining: ["JoinNode"],
  updating: ["UpdateInstance", "UpdateNode"],
  draining: ["PreDrainHook", "CordonNode", "DrainNode", "DetachVolumes"],
};
const stage = (step) => Object.keys(STAGES).find((it) => STAGES[it].includes(step)) ?? "deleting";

/** `2h5m`, `3m2s`, `4s`: as `ostler describe` writes it. */
export function span(ms) {
  const s = Math.max(0, Math.floor(ms / SECOND));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${Math.floor(s / 60) % 60}m`;
  return `${Math.floor(s / 86400)}d${Math.floor(s / 3600) % 24}h`;
}

const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

/** The parts of a machine's timeline: class, from, to, and the text that says what it is. */
function parts(row, now) {
  const all = [];
  const end = (to) => to ?? now;
  const told = (it, to) => `${it.what}, ${clock(it.from)}, ${span(end(to) - it.from)}${to ? "" : " so far"}${it.said ? `: ${it.said}` : ""}`;
  if (row.created) all.push(["life", row.created, now, `created ${clock(row.created)}`]);
  if (row.joined) all.push(["ran", row.joined, end(row.deleted), `runs since ${clock(row.joined)}`]);
  for (const it of row.steps) if (it.from) all.push([stage(it.what), it.from, end(it.to), told(it, it.to)]);
  if (row.wait?.from) all.push(["wait", row.wait.from, now, `waits for ${told(row.wait)}`]);
  if (row.sent?.from) all.push(["sent", row.sent.from, now, `asked: ${told(row.sent)}`]);
  for (const it of row.answers) {
    const times = it.times > 1 ? ` (x${it.times})` : "";
    all.push([it.failed ? "bad" : "ok", it.at, it.at, `${it.what} answered ${it.code}${times}, ${clock(it.at)}${it.said ? `: ${it.said}` : ""}`]);
  }
  return all;
}

const styled = new WeakMap();

/** Sets a style where it is another one: what does not move is not laid out again. */
function set(it, name, value) {
  const before = styled.get(it) ?? {};
  if (before[name] === value) return;
  it.style[name] = value;
  styled.set(it, { ...before, [name]: value });
}

/** Draws a machine into a track that shows the time between two points. */
export function draw(track, row, from, to, now) {
  const place = (at) => Math.min(100, Math.max(0, (at - from) / (to - from) * 100));
  const shown = row ? parts(row, now).filter(([, begin, end]) => end >= from && begin <= to) : [];
  while (track.children.length > shown.length) track.lastChild.remove();
  while (track.children.length < shown.length) track.append(document.createElement("i"));
  shown.forEach(([kind, begin, end, text], at) => {
    const it = track.children[at], left = place(begin), width = place(end) - left;
    if (it.className !== kind) it.className = kind;
    if (it.title !== text) it.title = text;
    set(it, "left", `${left}%`);
    set(it, "width", kind === "ok" || kind === "bad" ? "" : `${width}%`);
  });
}

/** Writes five times along an axis. `ago`: as time before now, else as a clock. */
export function axis(track, from, to, ago) {
  while (track.children.length < 5) track.append(document.createElement("span"));
  [...track.children].forEach((it, at) => {
    const time = from + (to - from) * at / 4;
    it.style.left = `${25 * at}%`;
    it.textContent = !ago ? clock(time) : at === 4 ? "now" : `−${span(to - time).replace(/(\D)0[smh]$/, "$1")}`;
  });
}

/** The least window that shows what goes on, or where nothing does, what went on last. */
export function fitting(rows, now) {
  const busy = rows.filter((it) => !it.rests);
  const begin = (it) => it.steps.at(-1)?.from ?? it.wait?.from ?? it.created ?? now;
  const ages = (busy.length ? busy : rows).map((it) => now - begin(it)).sort((a, b) => a - b);
  const age = ages[Math.floor(ages.length * 0.8)] ?? 0;
  return (WINDOWS.find(([, length]) => length > age * 1.1) ?? WINDOWS.at(-1))[1];
}
