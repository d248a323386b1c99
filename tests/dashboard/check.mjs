// The page of `ostler up` in headless Chromium, against the fake cloud: see README.md.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const { chromium } = createRequire(import.meta.url)("playwright-core");
const [ostler, pictures = "pictures", many = "0"] = process.argv.slice(2);
assert(ostler, "usage: node check.mjs OSTLER [PICTURES [MACHINES]]");
mkdirSync(pictures, { recursive: true });
const HOSTILE = "<img src=x onerror=document.title=1> \u202etxet";

const cls = (name, spec) => ({
  apiVersion: "machine.sapcloud.io/v1alpha1", kind: "MachineClass", metadata: { name }, provider: "fake.ostler.dev",
  providerSpec: { image: "linux-1", ...spec }, secretRef: { name: "fake", namespace: "default" },
});
const template = (name) => ({ metadata: { labels: { name } }, spec: { class: { kind: "MachineClass", name } } });
const deployment = (name, replicas, rollingUpdate) => ({
  apiVersion: "machine.sapcloud.io/v1alpha1", kind: "MachineDeployment", metadata: { name },
  spec: { replicas, selector: { matchLabels: { name } }, strategy: { type: "RollingUpdate", rollingUpdate }, template: template(name) },
});
const machine = (name, of) => ({
  apiVersion: "machine.sapcloud.io/v1alpha1", kind: "Machine", metadata: { name }, spec: { class: { kind: "MachineClass", name: of } },
});
const secret = { apiVersion: "v1", kind: "Secret", metadata: { name: "fake" }, stringData: { userData: "--token=<<BOOTSTRAP_TOKEN>>" } };
const fleet = [
  secret,
  cls("web", { region: "eu-1", initialize: true, latency: { create: "2s", boot: "4s", join: "2s", initialize: "1s", delete: "3s" } }),
  cls("gpu", { region: "eu-2", capacity: { maxInstances: 3, retryAfter: "30s" } }),
  cls("group", { region: "eu-3", groups: { zones: ["a", "b"] } }),
  cls("refused", { region: "eu-4", faults: [{ operation: "CreateMachine", code: "InvalidArgument", message: HOSTILE }] }),
  cls("silent", { region: "eu-5", faults: [{ operation: "CreateMachine", latency: "10m" }] }),
  deployment("web", 24, { maxSurge: 4, maxUnavailable: 2 }), deployment("gpu", 9, { maxSurge: 1, maxUnavailable: 0 }),
  machine("refused-1", "refused"), machine("asked-1", "silent"), machine("no-class", "missing"),
  {
    apiVersion: "ostler.dev/v1alpha1", kind: "MachinePool", metadata: { name: "group" },
    spec: { replicas: 5, strategy: { rollingUpdate: { maxSurge: 1 } }, template: template("group") },
  },
  {
    apiVersion: "ostler.dev/v1alpha1", kind: "MachineReserve", metadata: { name: "warm" },
    spec: { replicas: 2, targetRef: { kind: "MachineDeployment", name: "web" } },
  },
];

const home = mkdtempSync(join(tmpdir(), "ostler-dashboard-"));
const running = [];

/** Starts `ostler up`, and returns the link that it prints. */
async function up(name, ...more) {
  const data = join(home, name);
  const free = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0", "--autoscaler-listen", "127.0.0.1:0"];
  const child = spawn(ostler, ["up", "--no-live", "--data-dir", data, ...free, ...more], { stdio: ["ignore", "pipe", "inherit"] });
  running.push(child);
  let link;
  for await (const line of createInterface(child.stdout)) {
    link ??= line.match(/http:\S+#\S+/)?.[0];
    if (line.startsWith("ready")) break;
  }
  child.stdout.resume();
  const kubectl = (args, input) => {
    const ended = spawnSync("kubectl", ["--kubeconfig", join(data, "kubeconfig"), "--cache-dir", join(home, "cache"), ...args], { input, encoding: "utf8" });
    assert.equal(ended.status, 0, ended.stderr);
    return ended.stdout;
  };
  const apply = (...objects) => kubectl(["apply", "-f", "-"], JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }));
  return { link, apply, kubectl, pid: child.pid, command: (...args) => spawnSync(ostler, [...args, "--kubeconfig", join(data, "kubeconfig")]) };
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/** Opens a page; anything that the browser complains about fails the check. */
async function open(link, width, colorScheme, height = 900) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.on("console", (it) => it.type() === "error" && assert.fail(`the browser says: ${it.text()}`));
  page.on("pageerror", (error) => assert.fail(error));
  await page.goto(link);
  await page.locator("#state.live").waitFor();
  return page;
}

const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);

async function small() {
  const { link, apply, command } = await up("small");
  apply(...fleet);
  const page = await open(link, 1200, "light");
  const says = (text) => page.getByText(text).first().waitFor();
  await says("CapacityExhausted");
  await says("raise the quota, or wait for capacity");
  await says("ClassMissing");
  await page.getByText("rolled out: 24 machines").waitFor();
  command("rollout", "restart", "web");
  await page.getByText(/[1-9]\d* of 24 machines are replaced/).waitFor();
  await page.getByText(/\d+ new, \d+ old/).waitFor();
  assert.equal(new URL(page.url()).hash, "", "the token does not stay in the address");
  await page.screenshot({ path: join(pictures, "1200-light.png") });
  for (const [width, scheme] of [[1200, "dark"], [360, "light"], [360, "dark"]]) {
    const other = await open(link, width, scheme);
    await other.locator("#rows .row").nth(4).waitFor();
    assert(await fits(other), `${width} px: the page does not scroll sideways`);
    await other.screenshot({ path: join(pictures, `${width}-${scheme}.png`) });
    await other.locator("#of-machines").scrollIntoViewIfNeeded();
    await other.evaluate(() => document.querySelector(".tools").scrollIntoView());
    await other.locator("#rows .row").nth(4).waitFor();
    await other.screenshot({ path: join(pictures, `${width}-${scheme}-machines.png`) });
    await other.context().close();
  }

  // By hand: choose, filter, describe, close.
  await page.keyboard.press("/");
  await page.keyboard.type("refused");
  await page.waitForFunction(() => document.querySelectorAll("#rows .row").length === 1);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await page.getByText("Waits for InvalidSpec").waitFor();
  assert.equal(await page.locator("img").count(), 0, "what a driver says is text");
  assert.equal(await page.title(), "Ostler");
  await page.screenshot({ path: join(pictures, "1200-light-described.png") });
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#filter").inputValue(), "");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.waitForFunction(() => {
    const active = document.getElementById("rows").getAttribute("aria-activedescendant");
    return active && active === document.querySelector("#rows [aria-selected=true]")?.id;
  });
  await page.keyboard.press("?");
  await page.screenshot({ path: join(pictures, "1200-light-keys.png") });
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /machinedeployment\/web/ }).click();
  await page.getByText("Strategy").waitFor();
  await page.screenshot({ path: join(pictures, "1200-light-rollout.png") });
  const narrow = await open(link, 360, "dark");
  await narrow.locator("#rows .row", { hasText: "asked-1" }).click();
  await narrow.locator("#description", { hasText: "Waits for DriverWorking" }).waitFor();
  await narrow.screenshot({ path: join(pictures, "360-dark-described.png") });

  const stranger = await (await browser.newContext()).newPage();
  await stranger.goto(new URL("/", link).href);
  await stranger.getByText("this page has no valid token").waitFor();
  console.log("the page: as expected; pictures in", pictures);
}

/** How smooth the page is while `number` machines are replaced, and what it costs. */
async function large(number) {
  const { link, apply, kubectl, command, pid } = await up("large", "--target", "none");
  apply(secret, cls("many", { region: "eu-1", latency: { create: "1s", delete: "1s" } }), deployment("many", number, { maxSurge: "10%", maxUnavailable: 0 }));
  kubectl(["wait", "machinedeployment/many", `--for=jsonpath={.status.availableReplicas}=${number}`, "--timeout=600s"]);
  const cpu = () => Number(spawnSync("ps", ["-o", "cputimes=", "-p", pid], { encoding: "utf8" }).stdout);
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 } });
  const watched = await context.newPage();
  const devtools = await context.newCDPSession(watched);
  let bytes = 0;
  await devtools.send("Network.enable");
  // What the page's thread computes, whatever else the computer does.
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  const busy = async () => (await devtools.send("Performance.getMetrics")).metrics.find((it) => it.name === "TaskDuration").value * 1000;
  devtools.on("Network.dataReceived", (it) => { bytes += it.dataLength; });
  const begun = Date.now();
  await watched.goto(link);
  await watched.locator("#machines-number", { hasText: String(number) }).waitFor();
  console.log(`first picture of ${number} machines: ${Date.now() - begun} ms, ${bytes} bytes`);
  const measure = (ms) => watched.evaluate((ms) => new Promise((done) => {
    const frames = [], begun = performance.now();
    let last = begun;
    requestAnimationFrame(function next(at) {
      frames.push(at - last);
      last = at;
      scrollBy(0, 40);
      if (at - begun < ms) return requestAnimationFrame(next);
      frames.sort((a, b) => a - b);
      const at_ = (part) => Math.round(frames[Math.floor((frames.length - 1) * part)]);
      done({ frames: frames.length, median: at_(0.5), p95: at_(0.95), p99: at_(0.99), longest: at_(1) });
    });
  }), ms);
  for (const what of ["at rest", "rolling"]) {
    if (what === "rolling") command("rollout", "restart", "many");
    const [before, spent, worked] = [bytes, cpu(), await busy()];
    const frames = await measure(20_000);
    const each = ((await busy()) - worked) / frames.frames;
    console.log(`${what}, 20 s of scrolling: ${JSON.stringify(frames)} ms between frames, ${each.toFixed(1)} ms computed for each`);
    console.log(`  ${bytes - before} bytes, ${cpu() - spent} s of a processor in up and its core`);
  }
  await watched.screenshot({ path: join(pictures, "1200-many.png") });
}

try {
  if (Number(many)) await large(Number(many));
  else await small();
} finally {
  await browser.close();
  const ended = running.map((child) => new Promise((done) => child.once("exit", done)));
  for (const child of running) child.kill("SIGTERM");
  await Promise.all(ended);
  rmSync(home, { recursive: true });
}
