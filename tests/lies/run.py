"""Plants each lie of typescript.py in sdk/typescript, or of python.py in sdk/python, and runs `ostler sanity` over it.

    run.py --ostler PATH [--in python] [--whole] [--jobs N] [--only REGEX] [--every N]

A lie is seen if its check turns red. With --whole nobody knows the check: all checks run without the cloud between, until one is red, and if
none is, then those with the cloud. How many lies each way shows is printed at the end. node_modules of sdk/typescript must be there, or
.venv and stubs of sdk/python (TYPESCRIPT and PYTHON name other folders).
"""

import argparse, concurrent.futures, contextlib, os, re, shutil, subprocess, sys, tempfile, time
from pathlib import Path

import python, typescript

SCALE = os.environ.get("TIMEOUT_SCALE", "0.5")  # a computer that does other things needs more
ROOT = Path(__file__).parents[2]
SDK = Path(os.environ.get("TYPESCRIPT", ROOT / "sdk/typescript"))
PYTHON = Path(os.environ.get("PYTHON", ROOT / "sdk/python"))
CASE = re.compile(r"^[a-z-]+ \d+ \w+$")  # `create 2 lost`
OWN = ("--with-cloud", "--first")  # of this program, not of the suite
FILES = {"class": "example/class", "secret": "example/secret", "alt-class": "sanity/alt-class", "bad-class": "sanity/bad-class",
         "hot-class": "sanity/hot-class", "slow-class": "sanity/slow-class", "bad-secret": "sanity/bad-secret"}


def changed(changes, read):
    """The texts of the changed files by name."""
    texts = {}
    for change in changes:
        name, old, new = change if len(change) == 3 else (MAIN, *change)
        text = texts.get(name) or read(name)
        if old not in text:
            sys.exit(f"{name} has no {old!r}")
        texts[name] = text.replace(old, new, 1)
    return texts


def plant_python(changes, here):
    for path in PYTHON.glob("*.py"):
        shutil.copy(path, here)
    for name in (".venv", "stubs"):
        (here / name).symlink_to(PYTHON / name)
    for name, text in changed(changes, lambda name: (here / name).read_text()).items():
        (here / name).write_text(text)


def plant(changes, here):
    for name in ("driver.ts", "ostler.ts", "cloud.ts", "reflection.ts", "package.json", "tsconfig.json"):
        shutil.copy(SDK / name, here / name)
    (here / "node_modules").symlink_to(SDK / "node_modules")
    (here / "proto").symlink_to(ROOT / "proto")
    for name, text in changed(changes, lambda name: (here / name).read_text()).items():
        (here / name).write_text(text)
    built = subprocess.run([SDK / "node_modules/.bin/tsc", "-p", here], capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"{changes}: {built.stdout}")


@contextlib.contextmanager
def driver_of_python(changes, here):
    """Its command, that of its probe, its folder, its variables, and the flags of its cloud."""
    plant_python(changes, here)
    yield f"{here}/.venv/bin/python {here}/groups.py", f"python3 {here}/probe.py", PYTHON, {"CLOUD_FILE": str(here / "cloud")}, []


@contextlib.contextmanager
def driver_of_typescript(changes, here):
    plant(changes, here)
    cloud = subprocess.Popen(["node", here / "build/cloud.js", "serve"], stdout=subprocess.PIPE, text=True)
    try:
        url = cloud.stdout.readline().strip()
        yield f"node {here}/build/driver.js", f"node {here}/build/cloud.js", SDK, {"CLOUD_URL": url}, ["--cloud", url, "--cloud-env", "CLOUD_URL"]
    finally:
        cloud.kill()
        cloud.wait()


def sanity(ostler, changes, *args):
    """The names of the checks that are red (with --first the first one alone), what the suite said, and the seconds."""
    with tempfile.TemporaryDirectory() as folder, DRIVER(changes, Path(folder)) as (driver, probe, sdk, variables, cloud):
        began = time.monotonic()
        files = [word for flag, name in FILES.items() for word in (f"--{flag}", sdk / f"{name}.yaml")]
        suite = subprocess.Popen(
            [ostler, "sanity", "--unary", "--timeout-scale", SCALE, "--driver-cmd", driver, "--probe-cmd", probe, *files,
             *(cloud if "--with-cloud" in args else []), *(it for it in args if it not in OWN)],
            env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said, red = [], []
        for line in suite.stdout:
            said.append(line)
            if line.startswith("\u2717 ") and not ("--first" in args and red):
                red.append(line.split()[1])
                if "--first" in args:
                    suite.terminate()  # cleans up, and ends
        if suite.wait() == 2:
            red.append("no report")
        return red, "".join(said), time.monotonic() - began


def look(ostler, whole, lie):
    what, check, changes = lie
    if whole:
        told = {"what": what, "plain": sanity(ostler, changes, "--first", "--parallel", "4")}
        if not told["plain"][0] and DRIVER is driver_of_typescript:
            told["cloud"] = sanity(ostler, changes, "--first", "--with-cloud", "--focus", "^faults/")
        return told
    args = ["--with-cloud", "--list-lag", "2s", "--only", check] if CASE.match(check) else ["--focus", f"^{check}$"]
    return {"what": f"{what} ({check})", "plain": sanity(ostler, changes, *args)}


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--ostler", required=True, help="the program")
    asked.add_argument("--in", dest="language", default="typescript", choices=["typescript", "python"])
    asked.add_argument("--whole", action="store_true", help="all checks, without and with the cloud")
    asked.add_argument("--jobs", type=int, default=4)
    asked.add_argument("--only", default="", help="lies and checks with this in their text")
    asked.add_argument("--every", type=int, default=1, help="only each N-th lie; that all can be planted is checked")
    given = asked.parse_args()
    global DRIVER, MAIN
    tables = {"python": (driver_of_python, "groups.py", python.LIES, PYTHON),
              "typescript": (driver_of_typescript, "driver.ts", typescript.LIES, SDK)}
    for _, MAIN, table, sdk in tables.values():
        for _, _, changes in table:
            changed(changes, lambda name: (sdk / name).read_text())
    DRIVER, MAIN, table, _ = tables[given.language]
    lies = [it for it in table if re.search(given.only, f"{it[0]} {it[1]}")][::given.every]
    lies += [("nothing", ".*", [])] if given.whole else []
    seen, unseen, seconds = {"plain": 0, "cloud": 0, "either": 0}, [], []
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as jobs:
        for told in jobs.map(lambda lie: look(given.ostler, given.whole, lie), lies):
            ways = {way: told[way] for way in ("plain", "cloud") if way in told}
            red = {way: it[0] for way, it in ways.items()}
            print(told["what"], {way: (", ".join(it[0]) or "green", round(it[2])) for way, it in ways.items()}, flush=True)
            seconds.append(sum(it[2] for it in ways.values()))
            if told["what"] == "nothing":
                if any(red.values()):
                    sys.exit("the driver without a lie is red:\n" + "\n".join(it[1] for it in ways.values()))
                continue
            for way, names in red.items():
                seen[way] += bool(names)
            seen["either"] += any(red.values())
            if not any(red.values()):
                unseen.append(told["what"] + ("" if given.whole else "\n" + told["plain"][1]))
    planted = len([it for it in lies if it[0] != "nothing"])
    print(f"{planted} planted, {seen}, {sum(seconds) / 60:.1f} minutes of the suite, the longest {max(seconds, default=0):.0f} s")
    if unseen:
        sys.exit("not seen:\n" + "\n".join(unseen))


main()
