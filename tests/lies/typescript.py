"""What is planted in sdk/typescript: what it is, the check that must see it (`create 2 lost` is a case of `faults/create`, with --cloud),
and what becomes what in driver.ts, or in ostler.ts where the pair says so."""

ASK, PAGE = "  if (answer.ok) return JSON.parse(text);\n", 'const answer = await ask(x, "GET", `/${kind}?'
STATUS, MAKE = "    return { machine: record(await need(x)) };\n  },\n\n  async List", 'server = await ask(x, "POST", "/servers", { tags: all,'
DISK = 'await ask(x, "POST", "/disks", { tags: all }, `${x.op.idempotency_key}-disk`);'
FIND, NOT_FOUND = "  return { server: found[0],", 'throw new Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance")'
LIST, DELETE = "    const servers = await search<Server>(x, \"servers\", {}),", "  async DeleteMachine(x: Call) {\n"
INITIALIZE = "    if (!server.initialized) server = await ask(x, \"PUT\", `/servers/${server.id}`, { initialized: true }) as Server;\n"
PUT, FAILED = "      await ask(x, \"PUT\", `/${kind}/${thing.id}`, { tags });\n", 'new Failed("UNAVAILABLE", "CLOUD_FAILED", `the cloud says ${answer.status}`)'
UID, SERVE = "machine_uid: server.tags[UID!], initialized", "serve(driver, PROVIDER, \"0.1.0\");"
AWAY = 'new Failed("UNAVAILABLE", "NO_ANSWER", "the cloud does not answer")'


def absent_on(reason):
    return [(STATUS, "    return { machine: record(await need(x).catch((it) => { if (it.reason === \"%s\") %s; throw it; })) };\n  },\n\n  async List"
             % (reason, NOT_FOUND))]


def caught(verb, result, reasons):
    """The call answers so if it failed for one of these reasons."""
    return [(SERVE, SERVE.replace("driver,", f"{{ ...driver, {verb}: (x) => driver.{verb}(x).catch((it): any => {{\n"
             f"  if ({reasons}.includes(it.reason)) return {result};\n  throw it;\n}}) }},"))]


NO_LOOK = [("let { server, other } = await find(x);", "let { server, other } = await find(x).then((): Awaited<ReturnType<typeof find>> => ({}));")]
GONE, BAD, OUT = "{ outcome: \"DELETION_OUTCOME_WAS_ABSENT\" }", '["BAD_KEY"]', '["CLOUD_FAILED", "NO_ANSWER"]'
DONE = "{ machine: { provider_id: x.request.provider_id, initialized: true } }"

LIES = [
    ("creates without looking and without a token", "create/same-key-new-id", NO_LOOK + [("userData }, x.op.idempotency_key)", "userData }, `${Math.random()}`)")]),
    ("tags a server in the next call", "create/tags-atomic", [(MAKE, 'server = await ask(x, "POST", "/servers", { tags: {},'),
        ("    x.left = \"PARTIAL\"; // something", "    server = await ask(x, \"PUT\", `/servers/${server.id}`, { tags: { ...tags_of(spec), ...tags } }) as Server;\n    x.left = \"PARTIAL\"; // something")]),
    ("tags a disk in the next call", "create/tags-atomic", [(DISK, DISK.replace("await", "const disk = await").replace("tags: all", "tags: {}")
        + "\n      await ask(x, \"PUT\", `/disks/${disk.id}`, { tags: all });")]),
    ("never tags a disk", "create/tags-atomic", [(DISK, DISK.replace("tags: all", "tags: {}"))]),
    ("leaves out tags of the request", "create/request-tags", [("all = { ...tags_of(spec), ...tags }", "all = { ...tags_of(spec), ...x.op.identity_tags }")]),
    ("loses what is not ASCII in a tag", "create/request-tags", [("all = { ...tags_of(spec), ...tags }",
        "all: Tags = Object.fromEntries(Object.entries<string>({ ...tags_of(spec), ...tags }).map(([key, it]) => [key, it.replace(/[^ -~]/g, \"\")]))")]),
    ("keeps user data in a tag", "secret/not-in-tags", [(MAKE, MAKE.replace("tags: all", 'tags: { ...all, "user-data": `${bootstrap?.user_data}` }'))]),
    ("keeps user data in a tag, as base64", "secret/not-in-tags", [(MAKE, MAKE.replace("tags: all", 'tags: { ...all, "user-data": bootstrap?.user_data.toString("base64") ?? "" }'))]),
    ("keeps the key of the cloud in a tag", "secret/not-in-tags", [(MAKE, MAKE.replace("tags: all", 'tags: { ...all, key: `${x.op.secret.apiKey}` }'))]),
    ("takes user data for text", "create/user-data-intact", [('user_data.toString("base64")', 'user_data && Buffer.from(bootstrap.user_data.toString()).toString("base64")')]),
    ("does not look at the zone", "create/zone", [('x.op.machine?.zone || x.op.machine_class?.shape?.zone || "a"', '"a"')]),
    ("swaps the zones", "create/zone", [('const zone = x.op.machine?.zone ||', 'const zone = ({ a: "b", b: "a" } as Tags)[x.op.machine?.zone ?? ""] ||')]),
    ("finds by the beginning of the name", "create/prefix-name", [(FIND, "  const all = found[0] ? found : await search<Server>(x, \"servers\", {});\n"
        "  const alike = all.filter((it) => it.tags[NAME!]?.startsWith(x.op.target.name));\n  return { server: found[0] ?? alike[0],")]),
    ("takes an instance that does not fit", "create/incompatible", [("server && fixed(server, spec).length > 0", "server && Math.random() > 2")]),
    ("refuses a wrong class as a defect", "create/bad-class", [('new Failed("INVALID_ARGUMENT", "BAD_SPEC"', 'new Failed("INTERNAL", "BAD_SPEC"')]),
    ("does not say what is wrong with a class", "create/bad-class", [('"the provider spec is wrong", { violations }', '"the provider spec is wrong"')]),
    ("does not look for the id of a restored machine", "create/restored-provider-id", [("known = id.startsWith(SCHEME) && id !== SCHEME", "known = false")]),
    ("adopts and leaves the tags", "create/restored-provider-id", [("{ tags: { ...server.tags, ...tags } }) as Server", "{}) as Server")]),
    ("says that a cancelled create left nothing", "create/cancel", [("ostler.ts", '"the core cancelled the operation")', '"the core cancelled the operation", { certainty: "NOT_APPLIED" })')]),
    ("neither stops nor looks at the time", "create/timeout", [("ostler.ts", "    await pause(wait, undefined, { signal: this.stop.signal }).catch(() => {});\n", "    await pause(milliseconds + 9000);\n    if (wait >= 0) return;\n")]),
    ("a change without an answer did nothing", "create 2 lost", [('  if (method !== "GET") x.left = "UNKNOWN"; // until the cloud says what it did\n', "")]),
    ("a change without an answer did nothing, in a deletion", "delete 2 lost", [('  if (method !== "GET") x.left = "UNKNOWN"; // until the cloud says what it did\n', "")]),
    ("a refused server leaves no disk", "create 3 409", [('answer.ok ? "PARTIAL" : before', 'answer.ok ? "PARTIAL" : "NOT_APPLIED"')]),
    ("makes anew what got no answer", "create 3 lost", NO_LOOK + [("userData }, x.op.idempotency_key)", "userData }, `${Math.random()}`)")]),
    ("repeats a change with another token", "create 3 lost", [("async function ask(x: Call,", "async function ask(x: Call, method: string, path: string, body?: object, token?: string): Promise<any> {\n"
        "  return once(x, method, path, body, token).catch((it) => { if (it.reason !== \"NO_ANSWER\") throw it; return once(x, method, path, body, token && `${token}2`); });\n}\n\nasync function once(x: Call,")]),
    ("tags a server in the next call, and the cloud fails then", "create 4 500", [(MAKE, 'server = await ask(x, "POST", "/servers", { tags: {},'),
        ("    x.left = \"PARTIAL\"; // something", "    server = await ask(x, \"PUT\", `/servers/${server.id}`, { tags: { ...tags_of(spec), ...tags } }) as Server;\n    x.left = \"PARTIAL\"; // something")]),
    ("waits for an answer for ever", "create 1 hang", [(", signal });", " });")]),
    ("a 500 is absence", "status 1 500", absent_on("CLOUD_FAILED")),
    ("no answer is absence", "status-by-id 1 hang", absent_on("NO_ANSWER")),
    ("a 403 is absence", "status 1 403", absent_on("FORBIDDEN")),
    ("a 429 is absence", "status 1 429", absent_on("THROTTLED")),
    ("a 409 is absence", "status 1 409", absent_on("REFUSED")),
    ("a 404 of anything is absence", "status 1 404", [(' && text.includes("no_such_thing")', ""), (PAGE, PAGE), ("    found.push(...answer.items);\n    more = answer.more;", "    found.push(...(answer?.items ?? []));\n    more = answer?.more;")]),
    ("half of an answer is an empty one", "list 1 half", [("    text = await answer.text();", "    text = await answer.text().catch(() => '{\"items\": [], \"more\": false}');")]),
    ("an outage is absence", "status/cloud-away", absent_on("CLOUD_FAILED")),
    ("refused credentials are absence", "status/error-not-absent", absent_on("BAD_KEY")),
    ("a read initializes", "status/pure", [(STATUS, "    const server = await need(x);\n    return { machine: record(await ask(x, \"PUT\", `/servers/${server.id}`, { initialized: true })) };\n  },\n\n  async List")]),
    ("takes what has the id", "status/wrong-provider-id", [("named && named.tags[CLUSTER!] === x.op.cluster_id && named.tags[NAME!] === x.op.target.name", "named")]),
    ("says that an instance of others is absent", "status/not-ours", [('"FAILED_PRECONDITION", "NOT_OURS", "that instance has other tags", whose', '"NOT_FOUND", "NO_INSTANCE", "there is no such instance", whose && {}')]),
    ("does not say whose an instance is", "status/not-ours-cluster", [("provider_id: provider_id(other), cluster_id: other.tags[CLUSTER!] };\n  throw", "provider_id: provider_id(other) };\n  throw")]),
    ("says when it was", "status/same-message", [('"there is no such instance")', '`there is no such instance at ${Date.now()}`)')]),
    ("says the id of a request of an outage", "status/cloud-away", [("`the cloud says ${answer.status}`);\n}\n\nasync function search", "`the cloud says ${answer.status}, request ${Math.random()}`);\n}\n\nasync function search")]),
    ("tells the UID that it is asked for", "status/tells-tags", [(STATUS, "    return { machine: { ...record(await need(x)), machine_uid: x.op.target.uid } };\n  },\n\n  async List")]),
    ("bare errors, without a detail", "status/absent", [("ostler.ts", "return { code: grpc, details: message, metadata };", "return { code: grpc, details: message };")]),
    ("an error that lacks its type", "status/absent", [("ostler.ts", "type.googleapis.com/${PACKAGE}.OperationError", "type.googleapis.com/${PACKAGE}.Error")]),
    ("lists the first page", "list/exact", [("    more = answer.more;", "    more = false;")]),
    ("a list ends with the page that fails", "list 2 500", [(PAGE, "let answer: any;\n    try { answer = await ask(x, \"GET\", `/${kind}?"), ("page: `${page}` })}`);", "page: `${page}` })}`); } catch (it) { if (page === 0) throw it; break; }")]),
    ("an empty list when credentials are refused", "list/error-not-empty", caught("ListMachines", "{ machines: [], parts: [] }", BAD)),
    ("an empty list in an outage", "list/cloud-away", caught("ListMachines", "{ machines: [], parts: [] }", OUT)),
    ("lists all clusters", "list/other-cluster", [("{ [CLUSTER!]: x.op.cluster_id, ...tags,", "{ ...tags,")]),
    ("lists what it saw two seconds ago", "list/at-once", [(LIST, "    const now = await search<Server>(x, \"servers\", {}), known = seen.get(x.op.cluster_id);\n"
        "    seen.set(x.op.cluster_id, known && Date.now() - known.at < 2000 ? known : { at: Date.now(), now });\n    const servers = seen.get(x.op.cluster_id)!.now,"),
        ("const driver = {", "const seen = new Map<string, { at: number; now: Server[] }>();\nconst driver = {")]),
    ("lists no disks that were left", "list/parts", [("const left = disks.filter((it) =>", "const left = disks.filter((it) => it.id === \"\" &&")]),
    ("lists disks of servers that are there", "list/parts", [("const left = disks.filter((it) => !uids", "const left = disks.filter((it) => uids")]),
    ("gone, and nothing is deleted", "delete/basic", [(DELETE, DELETE + "    if (x.op) return { outcome: \"DELETION_OUTCOME_DELETED\" };\n")]),
    ("gone in an outage", "delete/cloud-away", caught("DeleteMachine", GONE, OUT)),
    ("gone when credentials are refused", "delete/error-not-gone", caught("DeleteMachine", GONE, BAD)),
    ("the disk stays", "delete/dependents", [("    for (const disk of disks) await ask", "    for (const disk of disks.slice(1)) await ask")]),
    ("the disk of a half-made create stays", "create-deleted 3 500", [("    for (const disk of disks) await ask", "    for (const disk of server ? disks : []) await ask")]),
    ("the disk of a half-made create stays, seen without the cloud", "list/parts", [("    for (const disk of disks) await ask", "    for (const disk of server ? disks : []) await ask")]),
    ("deletes by the id alone", "delete/foreign-cluster", [("const { server, other } = await find(x);\n    const there = server ?", "const { server = undefined, other } = await find(x).then((it) => it.server ? it : { ...it, server: it.other, other: undefined });\n    const there = server ?")]),
    ("says deleted where nothing was", "delete/says-which", [('${there || disks.length > 0 ? "DELETED" : "WAS_ABSENT"}', "DELETED")]),
    ("fails where nothing is to be deleted", "delete/twice", [("    if (other) return { outcome", "    if (!server) throw new Failed(\"FAILED_PRECONDITION\", \"NOTHING\", \"there is nothing to delete\");\n    if (other) return { outcome")]),
    ("does not find by UID what is to be deleted", "delete/by-uid", [(DELETE, DELETE + "    if (!x.request.provider_id) return { outcome: \"DELETION_OUTCOME_WAS_ABSENT\" };\n")]),
    ("a deletion that is refused is done", "delete 2 409", [("? await ask(x, \"DELETE\", `/servers/${server.id}`)", "? await ask(x, \"DELETE\", `/servers/${server.id}`).catch(() => true)")]),
    ("a disk that is not deleted is gone", "delete 4 500", [("await ask(x, \"DELETE\", `/disks/${disk.id}`);", "await ask(x, \"DELETE\", `/disks/${disk.id}`).catch(() => true);")]),
    ("deletes a disk and says that nothing was done", "delete 4 409", [("    const there = server ?", "    for (const it of await parts(x)) {\n      await ask(x, \"DELETE\", `/disks/${it.id}`);\n      x.left = \"NOT_APPLIED\";\n    }\n    const there = server ?")]),
    ("initialized, and nothing is done", "initialize/flow", [(INITIALIZE, "    server = { ...server, initialized: true };\n")]),
    ("initializes again each time", "initialize/once", [("    if (!server.initialized) server =", "    server =")]),
    ("initialized in an outage", "initialize/cloud-away", caught("InitializeMachine", DONE, OUT)),
    ("initialized, whatever the cloud said", "initialize 2 500", [(INITIALIZE, "    await ask(x, \"PUT\", `/servers/${server.id}`, { initialized: true }).catch(() => {});\n    server = { ...server, initialized: true };\n")]),
    ("initializes what is not there", "initialize/absent", caught("InitializeMachine", DONE, '["NO_INSTANCE"]')),
    ("applied, and nothing is done", "update/hot", [(PUT, "")]),
    ("takes the tags of others away", "update/foreign-tags-kept", [("([key]) => !own.includes(key))", "([key]) => key.startsWith(\"ostler.dev/\"))")]),
    ("believes the spec that was applied last", "update/partial-heals", [("    const disks = await parts(x), applied", "    if (JSON.stringify(last.spec) === JSON.stringify(spec)) return { applied_paths: [] };\n    const disks = await parts(x), applied")]),
    ("forgets the disks in an update", "update/parts", [("[...disks.map((it) => [\"disks\", it] as const), [\"servers\", server] as const]", "[[\"servers\", server] as const]")]),
    ("applies a part of what it refuses", "update/refused-whole", [("    if (paths.length > 0) {\n", "    if (paths.length > 0) {\n      await ask(x, \"PUT\", `/servers/${server.id}`, { tags: { ...server.tags, ...tags_of(spec) } });\n      x.left = \"NOT_APPLIED\";\n")]),
    ("applied in an outage", "update/cloud-away", caught("UpdateMachine", "{ applied_paths: [\"tags\"] }", OUT)),
    ("applied, whatever the cloud said", "update 4 409", [(PUT, PUT.replace("{ tags });", "{ tags }).catch(() => {});"))]),
    ("keeps a class by its name", "update/hot", [("parse(x.op.machine_class?.provider_spec_json ?? \"\")", "parse(kept(x))"), ("function spec_of(", "const classes: Tags = {};\n"
        "const kept = (x: Call) => classes[(x.op.machine_class as any).ref.name] ??= x.op.machine_class!.provider_spec_json;\n\nfunction spec_of(")]),
    ("keeps a secret by the name of its class", "secret/refresh", [("`Bearer ${x.op.secret.apiKey ?? \"\"}`", "`Bearer ${keys[(x.op.machine_class as any)?.ref.name] ??= `${x.op.secret.apiKey}`}`"), ("/** The answer; undefined", "const keys: Record<string, string> = {};\n\n/** The answer; undefined")]),
    ("an outage is a want of quota", "create/cloud-away", [(FAILED, FAILED.replace("UNAVAILABLE", "RESOURCE_EXHAUSTED"))]),
    ("an outage is a defect of its own", "create/cloud-away", [(FAILED, FAILED.replace("UNAVAILABLE", "INTERNAL"))]),
    ("an outage costs a day", "create/cloud-away", [(FAILED, FAILED[:-1] + ", { retry_after: { seconds: 86400 } })")]),
    ("a lost connection costs a day", "delete 1 reset", [(AWAY, AWAY[:-1] + ", { retry_after: { seconds: 86400 } })")]),
    ("does not hand on how long to wait", "status 1 429", [(', "too many requests", { retry_after: { seconds } }', ', "too many requests"')]),
    ("prints the key", "secret/not-in-output", [("  const signal =", "  console.error(`${x.op.secret.apiKey}`);\n  const signal =")]),
    ("prints user data", "secret/not-in-output", [("      const userData =", "      console.error(`${bootstrap?.user_data}`);\n      const userData =")]),
    ("tells no operations", "unary/kinds-told", [("ostler.ts", "operation_kinds: kinds,", "operation_kinds: [],")]),
    ("does not tell that it updates", "unary/kinds-told", [("ostler.ts", "operation_kinds: kinds,", 'operation_kinds: kinds.filter((it) => !it.includes("UPDATE")),')]),
    ("tells operations that it has not", "session/kinds-honest", [("ostler.ts", "operation_kinds: kinds,", 'operation_kinds: [...kinds, "OPERATION_KIND_DELETE_POOL_MACHINES"],')]),
    ("does not tell what runs", "unary/adapter-killed", [("ostler.ts", ".filter((it) => it.mutates)\n", ".filter(() => false)\n")]),
    ("tells an instance by another id after a restart", "resilience/crash-mid-create", [("const provider_id = (server: Server) => SCHEME + server.id;", "const START = `${Date.now()}`;\nconst provider_id = (server: Server) => `${SCHEME}${START}/${server.id}`;"),
        ("encodeURIComponent(id.slice(SCHEME.length))", "encodeURIComponent(id.replace(/^.*\\//, \"\"))")]),
    ("tells an id that is not that of the instance", "status/pure", [("provider_id: provider_id(server), machine_name", "provider_id: `${provider_id(server)}?${Math.random()}`, machine_name")]),
    ("calls every change hot", "validate/classifies", [("change_is_hot_updatable: good && paths.length === 0, not_hot_updatable_paths: paths", "change_is_hot_updatable: true")]),
    ("takes all of a spec into the digest", "validate/fixed-digest", [("update(part)", "update(JSON.stringify(spec))")]),
    ("mixes up volumes", "volumes/ids", [("volume_ids: csi.map(", "volume_ids: csi.reverse().map(")]),
    ("leaves out volumes of others", "volumes/ids", [("volume_ids: csi.map((it) => (it?.driver === PROVIDER ? it.volumeHandle : \"\"))", "volume_ids: csi.filter((it) => it?.driver === PROVIDER).map((it) => it.volumeHandle)")]),
    # Those of a second author.
    ("prints what it sends", "secret/not-in-output", [("  const signal =", "  console.log(JSON.stringify(body));\n  const signal =")]),
    ("keeps the key in the checkpoint", "secret/not-in-output", [("return { machine: record(server) };\n  },\n\n  async Init", "return { machine: record(server), checkpoint: `${x.op.secret.apiKey}` };\n  },\n\n  async Init")]),
    ("keeps user data in the checkpoint", "secret/not-in-output", [("return { machine: record(server) };\n  },\n\n  async Init", "return { machine: record(server), checkpoint: `${bootstrap?.user_data.toString(\"base64\")}` };\n  },\n\n  async Init")]),
    ("adopts what has the id, whosever it is", "create/adopt-only-unclaimed", [("let { server, other } = await find(x);", "let { server, other } = await find(x).then((it) => ({ server: it.server ?? it.other, other: undefined as Server | undefined }));")]),
    ("makes another beside the known id of others", "create/adopt-only-unclaimed", [("refuse(server ? undefined : other);", "void other;")]),
    ("finds by UID in any cluster", "create/adopt-only-unclaimed", [("const found = await search<Server>(x, \"servers\", {", "const found = await search<Server>({ ...x, op: { ...x.op, cluster_id: \"\" } } as Call, \"servers\", {"), ("{ [CLUSTER!]: x.op.cluster_id, ...tags,", "{ ...(x.op.cluster_id && { [CLUSTER!]: x.op.cluster_id }), ...tags,")]),
    ("deletes the disks of this UID in any cluster", "delete/foreign-cluster", [("const disks = await parts(x);\n    for", "const disks = await parts({ ...x, op: { ...x.op, cluster_id: \"\" } } as Call, x.op.target.uid);\n    for"), ("{ [CLUSTER!]: x.op.cluster_id, ...tags,", "{ ...(x.op.cluster_id && { [CLUSTER!]: x.op.cluster_id }), ...tags,")]),
    ("lists the parts of any cluster", "list/parts", [("disks = await search<Disk>(x, \"disks\", {});", "disks = await search<Disk>({ ...x, op: { ...x.op, cluster_id: \"\" } } as Call, \"disks\", {});"), ("{ [CLUSTER!]: x.op.cluster_id, ...tags,", "{ ...(x.op.cluster_id && { [CLUSTER!]: x.op.cluster_id }), ...tags,")]),
    ("lists those alone that have booted", "(create/beside-others|list/at-once)", [("machines: servers.map(record)", "machines: servers.filter((it) => it.readyAt <= Date.now()).map(record)")]),
    ("lists those of its class alone", "list/exact", [("machines: servers.map(record)", "machines: servers.filter((it) => Object.entries(spec_of(x).tags).every(([key, tag]) => it.tags[key] === tag)).map(record)")]),
    ("an instance with other tags does not fit", "update/hot", [("fixed(server, spec).length > 0", "(fixed(server, spec).length > 0 || Object.entries(spec.tags).some(([key, tag]) => server!.tags[key] !== tag))")]),
    ("says that each instance is stopped", "status/after-create", [('server.readyAt > Date.now() ? "PENDING" : "RUNNING"', '"STOPPED"')]),
    ("tells paths that did not change", "update/hot", [('applied.add("tags");', 'applied.add("labels");')]),
    ("refuses what an update in place has changed", "update/in-place", [(".filter((path) => last.wrong.length > 0 || last.spec[path] !== spec[path]);", ";\n    void last;")]),
    ("removes no tags of its own", "update/partial-heals", [("filter(([key]) => !own.includes(key))", "filter(() => own.length > 0)")]),
    ("a cancel ends all that runs", "create/cancel", [("ostler.ts", "if (call.op.operation_id === asked.request.operation_id) call.stop.abort();", "if (asked.request.operation_id) call.stop.abort();")]),
    ("answers nobody while an instance boots", "create/beside-others", [("ostler.ts", "    await pause(wait, undefined, { signal: this.stop.signal }).catch(() => {});\n", "    for (const until = Date.now() + wait; Date.now() < until;);\n")]),
    ("does not look at the zone of the class", "create/zone", [("x.op.machine?.zone || x.op.machine_class?.shape?.zone ||", "x.op.machine?.zone ||")]),
    ("says that each instance is initialized", "initialize/once", [("machine_uid: server.tags[UID!], initialized: server.initialized,", "machine_uid: server.tags[UID!], initialized: true,")]),
    ("a digest of its own in each process", "validate/fixed-digest", [("update(part)", "update(SALT + part)"), ("const driver = {", "const SALT = `${Math.random()}`;\nconst driver = {")]),
    ("is the same process after each start", "resilience/crash-mid-create", [("ostler.ts", "boot_id: randomUUID()", 'boot_id: randomUUID() && "5523c314-e224-4091-b04b-905d769940af"')]),
    ("remembers what it made", "status/removed", [("    const spec = spec_of(x), { tags, bootstrap } = x.request;\n", "    const spec = spec_of(x), { tags, bootstrap } = x.request, known = made.get(x.op.target.uid);\n    if (known && fixed(known, spec).length === 0) return { machine: record(known) };\n"),
        ("    return { machine: record(server) };\n  },\n\n  async Init", "    made.set(x.op.target.uid, server);\n    return { machine: record(server) };\n  },\n\n  async Init"), ("const driver = {", "const made = new Map<string, Server>();\nconst driver = {"), (DELETE, DELETE + "    made.delete(x.op.target.uid);\n")]),
    ("remembers whose instance is gone", "delete/says-which", [(DELETE, DELETE + '    if (gone.has(x.op.target.uid)) return { outcome: "DELETION_OUTCOME_WAS_ABSENT" };\n'), ('    return { outcome: `DELETION_OUTCOME_${there', '    gone.add(x.op.target.uid);\n    return { outcome: `DELETION_OUTCOME_${there'), ("const driver = {", "const gone = new Set<string>();\nconst driver = {")]),
    ("tells for three seconds what it told", "status/removed", [(STATUS, "    const known = told.get(x.op.target.uid);\n    if (known && Date.now() - known.at < 3000 && x.op.secret.apiKey) return known.answer;\n    const answer = { machine: record(await need(x)) };\n    told.set(x.op.target.uid, { at: Date.now(), answer });\n    return answer;\n  },\n\n  async List"),
        ("const driver = {", "const told = new Map<string, { at: number; answer: { machine: ReturnType<typeof record> } }>();\nconst driver = {")]),
    ("finds nothing without an id", "status/by-uid", [("async function need(x: Call): Promise<Server> {\n", "async function need(x: Call): Promise<Server> {\n  if (!x.request.provider_id) %s;\n" % NOT_FOUND)]),
    ("refuses to delete what boots", "create/cancel", [("    const there = server ?", '    if (server && server.readyAt > Date.now()) throw new Failed("FAILED_PRECONDITION", "BOOTS", "the server boots");\n    const there = server ?')]),
    ("makes it without a token", "create 3 stale", [("userData }, x.op.idempotency_key) as Server", "userData }, `${Math.random()}`) as Server")]),
    ("waits thousand times as long as it is told", "status 1 429", [("retry_after: { seconds } }", "retry_after: { seconds: seconds * 1000 } }")]),
    ("too many requests are a wrong class", "create 1 429", [('new Failed("RESOURCE_EXHAUSTED", "THROTTLED", "too many requests", {', 'new Failed("INVALID_ARGUMENT", "THROTTLED", "too many requests", {')]),
    ("what is not allowed is a wrong class", "update 1 403", [('new Failed("PERMISSION_DENIED", "FORBIDDEN"', 'new Failed("INVALID_ARGUMENT", "FORBIDDEN"')]),
    ("a 403 is absence for who initializes", "initialize 1 403", [("    let server = await need(x);\n", "    let server = await need(x).catch((it) => { if (it.reason === \"FORBIDDEN\") %s; throw it; });\n" % NOT_FOUND)]),
    ("asks again without a pause", "status 1 500", [("async function ask(x: Call,", "async function ask(x: Call, method: string, path: string, body?: object, token?: string): Promise<any> {\n"
        "  for (let tries = 0; ; tries += 1) {\n    try { return await once(x, method, path, body, token); } catch (it: any) { if (it.reason !== \"CLOUD_FAILED\" || tries > 3000) throw it; }\n  }\n}\n\nasync function once(x: Call,")]),
    ("ends when the cloud fails", "status/cloud-away", [("  throw new Failed(\"UNAVAILABLE\", \"CLOUD_FAILED\"", "  process.exit(1);\n  throw new Failed(\"UNAVAILABLE\", \"CLOUD_FAILED\"")]),
    ("a checkpoint that is too long", "secret/not-in-output", [("return { machine: record(server) };\n  },\n\n  async Init", 'return { machine: record(server), checkpoint: "x".repeat(5000) };\n  },\n\n  async Init')]),
    ("does not answer when it is probed", "session/kinds-honest", [("ostler.ts", "Probe: done({}),", "Probe: () => {},")]),
    ("trims user data", "create/user-data-intact", [('user_data.toString("base64")', 'user_data && Buffer.from(bootstrap.user_data.toString("latin1").trim(), "latin1").toString("base64")')]),
    ("cuts names", "create/max-name", [("all = { ...tags_of(spec), ...tags }", "all: Tags = { ...tags_of(spec), ...tags, [NAME!]: x.op.target.name.slice(0, 40) }")]),
    ("says when it found another one", "status/same-message", [('"that instance has other tags"', '`that instance has other tags at ${Date.now()}`')]),
    ("puts no tags of the class on what it makes", "update/hot", [("all = { ...tags_of(spec), ...tags }", 'all: Tags = { [OWN]: "", ...tags }')]),
]
