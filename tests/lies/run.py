"""Plants each lie of typescript.py in sdk/typescript, and runs `ostler sanity` over it.

    run.py --ostler PATH [--whole] [--jobs N] [--only REGEX] [--every N]

A lie is seen if its check turns red. With --whole nobody knows the check: all checks run without the cloud between, until one is red, and if
none is, then those with the cloud. How many lies each way shows is printed at the end. node_modules of sdk/typescript must be there.
"""

import argparse, concurrent.futures, os, re, shutil, subprocess, sys, tempfile, time
from pathlib import Path

import typescript

SCALE = os.environ.get("TIMEOUT_SCALE", "0.5")  # a computer that does other things needs more
SDK = Path(os.environ.get("TYPESCRIPT", Path(__file__).parents[2] / "sdk/typescript"))
CASE = re.compile(r"^[a-z-]+ \d+ \w+$")  # `create 2 lost`
OWN = ("--with-cloud", "--first")  # of this program, not of the suite
FILES = {"class": "example/class", "secret": "example/secret", "alt-class": "sanity/alt-class", "bad-class": "sanity/bad-class",
         "hot-class": "sanity/hot-class", "slow-class": "sanity/slow-class", "bad-secret": "sanity/bad-secret"}


def changed(changes, read):
    """The texts of the changed files by name."""
    texts = {}
    for change in changes:
        name, old, new = change if len(change) == 3 else ("driver.ts", *change)
        text = texts.get(name) or read(name)
        if old not in text:
            sys.exit(f"{name} has no {old!r}")
        texts[name] = text.replace(old, new, 1)
    return texts


def plant(changes, here):
    for name in ("driver.ts", "ostler.ts", "cloud.ts", "reflection.ts", "package.json", "tsconfig.json"):
        shutil.copy(SDK / name, here / name)
    (here / "node_modules").symlink_to(SDK / "node_modules")
    (here / "proto").symlink_to(Path(__file__).parents[2] / "proto")
    for name, text in changed(changes, lambda name: (here / name).read_text()).items():
        (here / name).write_text(text)
    built = subprocess.run([SDK / "node_modules/.bin/tsc", "-p", here], capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"{changes}: {built.stdout}")


def sanity(ostler, changes, *args):
    """The names of the checks that are red (with --first the first one alone), what the suite said, and the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        here, began = Path(folder), time.monotonic()
        plant(changes, here)
        cloud = subprocess.Popen(["node", here / "build/cloud.js", "serve"], stdout=subprocess.PIPE, text=True)
        try:
            url = cloud.stdout.readline().strip()
            with_cloud = ["--cloud", url, "--cloud-env", "CLOUD_URL"] if "--with-cloud" in args else []
            files = [word for flag, name in FILES.items() for word in (f"--{flag}", SDK / f"{name}.yaml")]
            suite = subprocess.Popen(
                [ostler, "sanity", "--unary", "--timeout-scale", SCALE, "--driver-cmd", f"node {here}/build/driver.js",
                 "--probe-cmd", f"node {here}/build/cloud.js", *files, *with_cloud, *(it for it in args if it not in OWN)],
                env={**os.environ, "CLOUD_URL": url}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said, red = [], []
            for line in suite.stdout:
                said.append(line)
                if line.startswith("\u2717 ") and not ("--first" in args and red):
                    red.append(line.split()[1])
                    if "--first" in args:
                        suite.terminate()  # cleans up, and ends
            if suite.wait() == 2:
                red.append("no report")
        finally:
            cloud.kill()
            cloud.wait()
        return red, "".join(said), time.monotonic() - began


def look(ostler, whole, lie):
    what, check, changes = lie
    if whole:
        told = {"what": what, "plain": sanity(ostler, changes, "--first", "--parallel", "4")}
        if not told["plain"][0]:
            told["cloud"] = sanity(ostler, changes, "--first", "--with-cloud", "--focus", "^faults/")
        return told
    args = ["--with-cloud", "--only", check] if CASE.match(check) else ["--focus", f"^{check}$"]
    return {"what": f"{what} ({check})", "plain": sanity(ostler, changes, *args)}


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--ostler", required=True, help="the program")
    asked.add_argument("--whole", action="store_true", help="all checks, without and with the cloud")
    asked.add_argument("--jobs", type=int, default=4)
    asked.add_argument("--only", default="", help="lies and checks with this in their text")
    asked.add_argument("--every", type=int, default=1, help="only each N-th lie; that all can be planted is checked")
    given = asked.parse_args()
    for _, _, changes in typescript.LIES:
        changed(changes, lambda name: (SDK / name).read_text())
    lies = [it for it in typescript.LIES if re.search(given.only, f"{it[0]} {it[1]}")][::given.every]
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
    print(f"{planted} planted, {seen}, {sum(seconds) / 60:.1f} minutes of the suite, the longest {max(seconds):.0f} s")
    if unseen:
        sys.exit("not seen:\n" + "\n".join(unseen))


main()
