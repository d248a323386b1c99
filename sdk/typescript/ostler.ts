// What every Ostler driver in TypeScript needs around its calls: a server, errors, and what runs. README.md explains.

import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Metadata, Server, ServerCredentials } from "@grpc/grpc-js";
import type { ServiceDefinition, StatusObject, UntypedServiceImplementation } from "@grpc/grpc-js";
import { fromJSON, loadSync } from "@grpc/proto-loader";
import type { MessageTypeDefinition } from "@grpc/proto-loader";
import { ReflectionService } from "@grpc/reflection";
import { described } from "./reflection.js";

const PACKAGE = "ostler.driver.v1alpha1";
const PAGE = 500; // records in one message of a list
const ABANDONED = 25_000; // for calls of an adapter that has gone, once the driver is to end

// The contract lies beside the driver, or at the root of the repository.
const here = import.meta.dirname; // build/
const proto = [join(here, "../proto"), join(here, "../../../proto")].find(existsSync) ?? "proto";
const contract = loadSync(`${PACKAGE.replaceAll(".", "/")}/machine_driver.proto`, {
  includeDirs: [proto], keepCase: true, longs: Number, enums: String, defaults: true });
// The status of gRPC with details, which no library brings: google/rpc/status.proto.
const field = (id: number, type: string, rule?: "repeated") => ({ id, type, ...(rule && { rule }) });
const rpc = fromJSON({ nested: {
  Any: { fields: { type_url: field(1, "string"), value: field(2, "bytes") } },
  Status: { fields: { code: field(1, "int32"), message: field(2, "string"), details: field(3, "Any", "repeated") } } } },
  { keepCase: true });
const bytes = (message: unknown, value: object) => (message as MessageTypeDefinition<object, object>).serialize(value);

/** MachineErrorCode by its name. */
const CODES = { CANCELED: 1, UNKNOWN: 2, INVALID_ARGUMENT: 3, DEADLINE_EXCEEDED: 4, NOT_FOUND: 5, ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7, RESOURCE_EXHAUSTED: 8, FAILED_PRECONDITION: 9, ABORTED: 10, OUT_OF_RANGE: 11, UNIMPLEMENTED: 12,
  INTERNAL: 13, UNAVAILABLE: 14, DATA_LOSS: 15, UNAUTHENTICATED: 16, UNINITIALIZED: 17 } as const;
/** Reasons on which the core acts: MachineErrorReason. Any other word is for people. */
const TYPED = ["NOT_OURS", "NOT_HOT_UPDATABLE", "THROTTLED"];
export type Left = "NOT_APPLIED" | "PARTIAL" | "UNKNOWN";
export type Violation = { path: string; description: string };

/** Ends a call without a result. `more`: other fields of OperationError, such as `retry_after: { seconds: 30 }` or
 * `certainty`, if it is not what `x.left` says; UNKNOWN makes the core look first. */
export class Failed extends Error {
  constructor(readonly code: keyof typeof CODES, readonly reason: string, message: string,
    readonly more: { certainty?: Left; violations?: Violation[]; [field: string]: unknown } = {}) { super(message); }

  /** As a gRPC status, which carries the error in its details. */
  status(left: Left): Partial<StatusObject> {
    const { code, reason, message, more } = this;
    const error = bytes(contract[`${PACKAGE}.OperationError`], {
      ...more, reason, message, code: CODES[code], certainty: `OUTCOME_CERTAINTY_${more.certainty ?? left}`,
      ...(TYPED.includes(reason) && { typed_reason: `MACHINE_ERROR_REASON_${reason}` }) });
    const grpc = code === "UNINITIALIZED" ? 2 : CODES[code]; // gRPC has no such code
    const details = [{ type_url: `type.googleapis.com/${PACKAGE}.OperationError`, value: error }];
    const metadata = new Metadata();
    metadata.set("grpc-status-details-bin", bytes(rpc.Status, { code: grpc, message, details }));
    return { code: grpc, details: message, metadata };
  }
}

/** What a driver needs of OperationContext; operation.proto has the rest. */
export interface Context {
  operation_id: string; idempotency_key: string; cluster_id: string; identity_tags: Record<string, string>;
  target: { kind: string; namespace: string; name: string; uid: string };
  machine_class: { provider_spec_json: string; shape: { zone: string } | null } | null;
  machine: { zone: string } | null; secret: Record<string, Buffer>; timeout: { seconds: number; nanos: number } | null;
}

/** What a call of the driver gets: `request`, and `op`, its context. */
export class Call {
  readonly op: Context;
  readonly deadline: number;
  /** What a failure from here on leaves behind. */
  left: Left = "NOT_APPLIED";
  readonly stop = new AbortController();

  constructor(readonly request: any) {
    this.op = request.context;
    const { seconds, nanos } = this.op.timeout ?? { seconds: 0, nanos: 0 };
    this.deadline = Date.now() + Math.round(seconds * 1000 + nanos / 1e6 || 60_000);
  }

  /** Waits, unless the core cancels or the time is over: then the call ends, with what `left` says. */
  async sleep(milliseconds: number) {
    const wait = Math.max(0, Math.min(milliseconds, this.deadline - Date.now()));
    await pause(wait, undefined, { signal: this.stop.signal }).catch(() => {});
    if (this.stop.signal.aborted) throw new Failed("CANCELED", "CANCELED", "the core cancelled the operation");
    if (Date.now() >= this.deadline) {
      throw new Failed("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "the time of the operation is over");
    }
  }
}

/** The calls that a driver has, by their names in machine_driver.proto. */
export type Driver = Record<string, (x: Call) => Promise<Record<string, any>>>;

/** Serves until SIGTERM, and then until the calls that run are done. `info`: other fields of GetInfoResponse, such as list_lag. */
export function serve(driver: Driver, provider: string, version: string, info: object = {}) {
  const running = new Map<object, { call: Call; kind: string; mutates: boolean }>();
  const kinds = Object.keys(driver).map((name) =>
    "OPERATION_KIND" + name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase());
  const whoami = { provider, driver_name: provider.split(".")[0], driver_version: version, boot_id: randomUUID(),
    operation_kinds: kinds, max_in_flight: 64, ...info };
  const done = (answer: object) => (_: unknown, respond: (error: null, answer: object) => void) => respond(null, answer);
  const service: UntypedServiceImplementation = {
    GetInfo: (_: unknown, respond: any) => respond(null, { ...whoami, running: [...running.values()]
      .filter((it) => it.mutates)
      .map(({ call: { op }, kind }) => ({ operation_id: op.operation_id, idempotency_key: op.idempotency_key, target: op.target, kind })) }),
    Probe: done({}),
    CancelOperation: (asked: any, respond: any) => {
      for (const { call } of running.values()) {
        if (call.op.operation_id === asked.request.operation_id) call.stop.abort();
      }
      respond(null, {});
    },
  };

  async function work(name: string, kind: string, asked: any) {
    const call = new Call(asked.request), mutates = !/^(Get|List|Validate)/.test(name), key = {};
    if (!mutates) asked.on("cancelled", () => call.stop.abort()); // a mutation goes on when the client has gone
    try {
      const busy = [...running.values()].some((it) => it.mutates && it.call.op.target?.uid === call.op.target?.uid);
      if (mutates && busy) throw new Failed("ABORTED", "TARGET_BUSY", "another operation of this machine runs");
      running.set(key, { call, kind, mutates });
      return { answer: await driver[name]!(call) };
    } catch (error) {
      if (error instanceof Failed) return { error: error.status(call.left) };
      const defect = error instanceof Error ? error : new Error("not an error"); // its text may hold secrets
      console.error(`${name}: ${defect.name}`, defect.stack?.split("\n").filter((line) => /^ +at /.test(line)).slice(0, 5).join(";"));
      const failed = new Failed("INTERNAL", "DRIVER_DEFECT", `${name} failed: ${defect.name}`, { certainty: "UNKNOWN" });
      return { error: failed.status(call.left) };
    } finally {
      running.delete(key);
    }
  }

  Object.keys(driver).forEach((name, at) => {
    service[name] = async (asked: any, respond?: any) => {
      const { answer, error } = await work(name, kinds[at]!, asked);
      if (respond) return respond(error ?? null, answer);
      if (error) return asked.emit("error", error);
      const { machines = [], ...rest } = answer!; // a long list as one message is longer than gRPC takes
      asked.write(rest);
      for (let at = 0; at < machines.length; at += PAGE) asked.write({ machines: machines.slice(at, at + PAGE) });
      asked.end();
    };
  });

  const path = process.env.OSTLER_DRIVER_SOCKET;
  if (!path) throw new Error("OSTLER_DRIVER_SOCKET must name a unix socket");
  mkdirSync(dirname(path), { recursive: true, mode: 0o750 });
  rmSync(path, { force: true });
  const server = new Server();
  server.addService(contract[`${PACKAGE}.MachineDriverService`] as ServiceDefinition, service);
  new ReflectionService(described(contract)).addToServer(server);
  const umask = process.umask(0o117); // for the socket alone
  server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) => {
    if (error) throw error;
    process.umask(umask);
    // Without its file no adapter finds the driver: who started it starts it again.
    const there = setInterval(() => existsSync(path) || end(1), 2000);
    const end = (code: number) => {
      clearInterval(there);
      server.tryShutdown(async () => {
        // Their adapter has gone, and the core has others do the same soon.
        for (const until = Date.now() + ABANDONED; running.size > 0 && Date.now() < until;) await pause(100);
        process.exit(running.size > 0 ? 1 : code);
      });
    };
    process.once("SIGTERM", () => end(0)).once("SIGINT", () => end(0));
  });
}
