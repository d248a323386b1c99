// An Ostler driver for the cloud in cloud.ts: one method for each call. README.md explains.

import { createHash } from "node:crypto";
import { Failed, serve } from "./ostler.js";
import type { Call, Violation } from "./ostler.js";

const PROVIDER = "typescript.ostler.dev", SCHEME = "typescript:///", CLOUD = process.env.CLOUD_URL ?? "http://127.0.0.1:8087";
const FIXED = ["size", "image"] as const; // what cannot be changed on a running instance
const OWN = "own-tags"; // a tag with the keys that are there by us
const [CLUSTER, NAME, UID] = ["ostler.dev/cluster-id", "ostler.dev/machine-name", "ostler.dev/machine-uid"];

type Tags = Record<string, string>;
type Spec = { size: string; image: string; bootSeconds: number; tags: Tags };
type Server = { id: string; tags: Tags; size: string; image: string; readyAt: number; initialized: boolean };
type Disk = { id: string; tags: Tags };

// The cloud: what it answers, and what the core is to hear.

/** The answer; undefined: the cloud says that there is no such thing. */
async function ask(x: Call, method: string, path: string, body?: object, token?: string): Promise<any> {
  const signal = AbortSignal.timeout(Math.max(100, x.deadline - Date.now() - 200)), before = x.left;
  if (method !== "GET") x.left = "UNKNOWN"; // until the cloud says what it did
  let answer: Response, text: string;
  try {
    const headers = { Authorization: `Bearer ${x.op.secret.apiKey ?? ""}`, ...(token && { "Idempotency-Key": token }) };
    answer = await fetch(CLOUD + path, { method, headers, body: body && JSON.stringify(body), signal });
    text = await answer.text();
  } catch {
    throw new Failed("UNAVAILABLE", "NO_ANSWER", "the cloud does not answer");
  }
  if (answer.status < 500 && method !== "GET") x.left = answer.ok ? "PARTIAL" : before;
  if (answer.ok) return JSON.parse(text);
  if (answer.status === 404 && text.includes("no_such_thing")) return undefined;
  if (answer.status === 401) throw new Failed("UNAUTHENTICATED", "BAD_KEY", "the cloud refuses the apiKey of the secret");
  if (answer.status === 403) throw new Failed("PERMISSION_DENIED", "FORBIDDEN", "the cloud does not allow that");
  if (answer.status === 429) {
    const seconds = Number(answer.headers.get("retry-after") ?? 5);
    throw new Failed("RESOURCE_EXHAUSTED", "THROTTLED", "too many requests", { retry_after: { seconds } });
  }
  if (answer.status < 500) throw new Failed("FAILED_PRECONDITION", "REFUSED", `the cloud says ${answer.status}`);
  throw new Failed("UNAVAILABLE", "CLOUD_FAILED", `the cloud says ${answer.status}`);
}

async function search<T>(x: Call, kind: "servers" | "disks", tags: Tags): Promise<T[]> {
  const found: T[] = [];
  for (let page = 0, more = true; more; page += 1) {
    const answer = await ask(x, "GET", `/${kind}?${new URLSearchParams({ [CLUSTER!]: x.op.cluster_id, ...tags, page: `${page}` })}`);
    found.push(...answer.items);
    more = answer.more;
  }
  return found;
}

// Identity.

const provider_id = (server: Server) => SCHEME + server.id;
const parts = (x: Call, uid = x.op.target.uid) => search<Disk>(x, "disks", { [UID!]: uid });

/** By the id that the core knows if cluster and name fit, else by UID; `other`: an instance of this id that is not ours. */
async function find(x: Call): Promise<{ server?: Server; other?: Server }> {
  const id: string = x.request.provider_id ?? "", known = id.startsWith(SCHEME) && id !== SCHEME;
  const named: Server | undefined = known ? await ask(x, "GET", `/servers/${encodeURIComponent(id.slice(SCHEME.length))}`) : undefined;
  if (named && named.tags[CLUSTER!] === x.op.cluster_id && named.tags[NAME!] === x.op.target.name) return { server: named };
  const found = await search<Server>(x, "servers", { [UID!]: x.op.target.uid });
  if (found.length > 1) throw new Failed("OUT_OF_RANGE", "SEVERAL_INSTANCES", "two instances claim to be this machine: delete one");
  return { server: found[0], other: found[0] ? undefined : named };
}

function refuse(other?: Server) {
  if (!other) return;
  const whose = { provider_id: provider_id(other), cluster_id: other.tags[CLUSTER!] };
  throw new Failed("FAILED_PRECONDITION", "NOT_OURS", "that instance has other tags", whose);
}

async function need(x: Call): Promise<Server> {
  const { server, other } = await find(x);
  if (server) return server;
  refuse(other);
  throw new Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance");
}

const record = (server: Server) => ({
  provider_id: provider_id(server), machine_name: server.tags[NAME!], machine_uid: server.tags[UID!], initialized: server.initialized,
  power_state: `MACHINE_POWER_STATE_${server.readyAt > Date.now() ? "PENDING" : "RUNNING"}` });

// Provider specs, as class.yaml has one.

function parse(text: string): { spec: Spec; wrong: Violation[] } {
  let spec: any = {};
  try { spec = { tags: {}, bootSeconds: 0, ...JSON.parse(text) }; } catch { /* as one that lacks everything */ }
  const is_tag = ([key, value]: [string, unknown]) => typeof value === "string" && !key.startsWith("ostler.dev/");
  const rules: Record<string, [boolean, string]> = {
    size: [["small", "large"].includes(spec.size), "must be small or large"],
    image: [typeof spec.image === "string" && spec.image !== "", "must name an image"],
    tags: [spec.tags?.constructor === Object && Object.entries(spec.tags).every(is_tag), "must map text to text, and none of ostler.dev/"],
    bootSeconds: [spec.bootSeconds >= 0 && spec.bootSeconds <= 600, "must be a number from 0 to 600"] };
  const unknown = Object.keys(spec).filter((path) => !(path in rules)).map((path) => ({ path, description: "is not known" }));
  const wrong = Object.entries(rules).filter(([, [good]]) => !good).map(([path, [, description]]) => ({ path, description }));
  return { spec, wrong: [...wrong, ...unknown] };
}

function spec_of(x: Call): Spec {
  const { spec, wrong: violations } = parse(x.op.machine_class?.provider_spec_json ?? "");
  if (violations.length > 0) throw new Failed("INVALID_ARGUMENT", "BAD_SPEC", "the provider spec is wrong", { violations });
  return spec;
}

/** What stands in the way of a hot update. */
const fixed = (old: Pick<Spec, "size" | "image">, spec: Spec) => FIXED.filter((path) => old[path] !== spec[path]);
const tags_of = (spec: Spec) => ({ ...spec.tags, [OWN]: Object.keys(spec.tags).join(" ") });

// The calls. Each gets what it needs in `x`, may be repeated, and may be stopped at `x.sleep`.

const driver = {
  async CreateMachine(x: Call) {
    const spec = spec_of(x), { tags, bootstrap } = x.request;
    let { server, other } = await find(x); // look first: this may be the second try
    refuse(server ? undefined : other);
    if (server && server.tags[UID!] !== x.op.target.uid) { // a restored cluster: adopt it, parts first
      for (const it of await parts(x, server.tags[UID!])) await ask(x, "PUT", `/disks/${it.id}`, { tags: { ...it.tags, ...tags } });
      server = await ask(x, "PUT", `/servers/${server.id}`, { tags: { ...server.tags, ...tags } }) as Server;
    } else if (server && fixed(server, spec).length > 0) {
      throw new Failed("ALREADY_EXISTS", "DOES_NOT_FIT", "an instance of this machine exists and was made differently");
    } else if (!server) {
      const { size, image, bootSeconds } = spec, all = { ...tags_of(spec), ...tags };
      const zone = x.op.machine?.zone || x.op.machine_class?.shape?.zone || "a";
      await ask(x, "POST", "/disks", { tags: all }, `${x.op.idempotency_key}-disk`); // the token finds one that is there
      const userData = bootstrap?.user_data.toString("base64");
      server = await ask(x, "POST", "/servers", { tags: all, size, image, bootSeconds, zone, userData }, x.op.idempotency_key) as Server;
    }
    x.left = "PARTIAL"; // something exists, however this ends
    await x.sleep(server.readyAt - Date.now());
    return { machine: record(server) };
  },

  async InitializeMachine(x: Call) {
    let server = await need(x);
    if (!server.initialized) server = await ask(x, "PUT", `/servers/${server.id}`, { initialized: true }) as Server;
    return { machine: record(server) };
  },

  async UpdateMachine(x: Call) {
    const spec = spec_of(x), server = await need(x), last = parse(x.request.last_applied_spec_json);
    // What an update in place changed is in the last applied spec as here, whatever the instance shows.
    const paths = fixed(server, spec).filter((path) => last.wrong.length > 0 || last.spec[path] !== spec[path]);
    if (paths.length > 0) {
      const violations = paths.map((path) => ({ path, description: "is fixed when the instance is made" }));
      throw new Failed("FAILED_PRECONDITION", "NOT_HOT_UPDATABLE", "this cannot change while it runs", { violations });
    }
    const disks = await parts(x), applied = new Set<string>();
    for (const [kind, thing] of [...disks.map((it) => ["disks", it] as const), ["servers", server] as const]) {
      const own = (thing.tags[OWN] ?? "").split(" "); // tags of others stay
      const tags = { ...Object.fromEntries(Object.entries(thing.tags).filter(([key]) => !own.includes(key))), ...tags_of(spec) };
      if (JSON.stringify(Object.entries(tags).sort()) === JSON.stringify(Object.entries(thing.tags).sort())) continue;
      await ask(x, "PUT", `/${kind}/${thing.id}`, { tags });
      applied.add("tags");
    }
    return { applied_paths: [...applied] };
  },

  async DeleteMachine(x: Call) {
    const { server, other } = await find(x);
    const there = server ? await ask(x, "DELETE", `/servers/${server.id}`) : undefined;
    const disks = await parts(x);
    for (const disk of disks) await ask(x, "DELETE", `/disks/${disk.id}`);
    if (other) return { outcome: "DELETION_OUTCOME_NOT_OURS", provider_id: provider_id(other), cluster_id: other.tags[CLUSTER!] };
    return { outcome: `DELETION_OUTCOME_${there || disks.length > 0 ? "DELETED" : "WAS_ABSENT"}` };
  },

  async GetMachineStatus(x: Call) {
    return { machine: record(await need(x)) };
  },

  async ListMachines(x: Call) {
    const servers = await search<Server>(x, "servers", {}), disks = await search<Disk>(x, "disks", {});
    const uids = new Set(servers.map((it) => it.tags[UID!]));
    const left = disks.filter((it) => !uids.has(it.tags[UID!])); // by creates that broke off
    return { machines: servers.map(record), parts: left.map((it) =>
      ({ id: it.id, kind: "disk", machine_name: it.tags[NAME!], machine_uid: it.tags[UID!] })) };
  },

  async GetVolumeIds(x: Call) {
    const csi = (x.request.pv_specs_json as string[]).map((text) => JSON.parse(text).csi);
    return { volume_ids: csi.map((it) => (it?.driver === PROVIDER ? it.volumeHandle : "")) };
  },

  async ValidateClass(x: Call) {
    const { spec, wrong: violations } = parse(x.request.provider_spec_json), old = parse(x.request.old_provider_spec_json);
    const good = violations.length === 0, paths = good && old.wrong.length === 0 ? fixed(old.spec, spec) : [];
    // Tools name classes by the digest, so it must never change for the same fixed part.
    const part = JSON.stringify(FIXED.map((path) => spec[path]));
    return { violations, change_is_hot_updatable: good && paths.length === 0, not_hot_updatable_paths: paths,
      fixed_spec_sha256: good ? createHash("sha256").update(part).digest("hex") : "" };
  },
};

serve(driver, PROVIDER, "0.1.0");
