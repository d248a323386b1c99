// A small cloud over HTTP, in memory: servers, and disks that a server does not take with it. Your infrastructure takes its place.
//
//   node build/cloud.js serve [PORT]   listens, and prints its address
//   node build/cloud.js WORD …         what the suite asks of the cloud at CLOUD_URL: "Reading the cloud" in ../conformance/README.md

import { createServer } from "node:http";
import type { IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

type Thing = { id: string; tags: Record<string, string>; userData?: string; zone?: string; readyAt?: number; initialized?: boolean };
type Answer = [status: number, body: unknown];

const PAGE = 2; // things in one page of a list
const things: Record<string, Map<string, Thing>> = { servers: new Map(), disks: new Map() };
const made = new Map<string, string>(); // by client token
let [ids, changes, allowed] = [0, 0, Infinity]; // `allowed`: so many changes more until the cloud is away

function answer(asked: IncomingMessage, url: URL, body: any): Answer {
  const [kind = "", id] = url.pathname.slice(1).split("/"), all = things[kind];
  if (kind === "admin") return [200, words[id!]!(...body)];
  if (allowed === 0) return [503, { error: "away" }];
  if (/^Bearer invalid/.test(asked.headers.authorization ?? "")) return [401, { error: "unauthorized" }];
  if (!all) return [404, { error: "no_such_path" }];
  if (!id && asked.method === "GET") {
    const { page = "0", ...tags } = Object.fromEntries(url.searchParams);
    const found = [...all.values()].filter((it) => Object.entries(tags).every(([key, value]) => it.tags[key] === value));
    const from = Number(page) * PAGE;
    return [200, { items: found.slice(from, from + PAGE), more: found.length > from + PAGE }];
  }
  const thing = all.get(id ?? made.get(String(asked.headers["idempotency-key"])) ?? "");
  if (id ? !thing : asked.method !== "POST") return [404, { error: "no_such_thing" }];
  if (asked.method === "GET" || (thing && !id)) return [200, thing];
  changes += 1;
  allowed -= 1;
  if (asked.method === "DELETE") all.delete(id!);
  else if (thing) Object.assign(thing, body);
  else {
    const { bootSeconds = 0, ...rest } = body, name = `${kind.slice(0, 1)}-${(ids += 1)}`;
    made.set(String(asked.headers["idempotency-key"]), name);
    all.set(name, { ...rest, id: name, readyAt: Date.now() + bootSeconds * 1000, initialized: false });
    return [201, all.get(name)];
  }
  return [200, thing];
}

const identity = ({ tags }: Thing) => ({ name: tags["ostler.dev/machine-name"] ?? "", uid: tags["ostler.dev/machine-uid"] ?? "",
  clusterId: tags["ostler.dev/cluster-id"] ?? "" });
const server = (id: string) => things.servers!.get(id.replace(/^.*\//, ""));
const words: Record<string, (...args: string[]) => unknown> = {
  instances: () => [...things.servers!.values()].map((it) =>
    ({ ...identity(it), providerId: `typescript:///${it.id}`, tags: it.tags, userData: it.userData, zone: it.zone })),
  resources: () => Object.entries(things).flatMap(([kind, all]) =>
    [...all.values()].map((it) => ({ ...identity(it), id: it.id, kind: kind.slice(0, -1), tags: it.tags }))),
  zones: () => ["a", "b"],
  "journal-length": () => changes,
  "add-foreign-tag": (id, tag) => {
    const [key = "", value = ""] = tag!.split("=");
    (server(id!) ?? things.disks!.get(id!))!.tags[key] = value;
    changes += 1;
  },
  "remove-instance": (id) => things.servers!.delete(server(id!)?.id ?? "") && (changes += 1),
  break: (how, count) => { allowed = how === "off" ? Infinity : Number(count ?? 0); },
};

function serve(port = "0") {
  const listener = createServer(async (asked, answered) => {
    const text = (await asked.toArray()).join("");
    const [status, body] = answer(asked, new URL(asked.url!, "http://cloud"), text ? JSON.parse(text) : {});
    answered.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body ?? null));
  });
  listener.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${(listener.address() as AddressInfo).port}`));
}

const [word = "", ...args] = process.argv.slice(2);
if (word === "serve") serve(...args);
else if (word in words) {
  console.log(await (await fetch(`${process.env.CLOUD_URL}/admin/${word}`, { method: "POST", body: JSON.stringify(args) })).text());
} else {
  console.error(`cloud.js knows serve, ${Object.keys(words).join(", ")}`);
  process.exit(1);
}
