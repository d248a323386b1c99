"""What a program is made of: sbom.cdx.json (CycloneDX), and the licences of its crates as their authors wrote them.

    bom.py PACKAGE TRIPLE DIRECTORY

Features are those of the whole workspace: a crate may be listed that this program does not need.
"""

import json
import pathlib
import shutil
import subprocess
import sys

LICENCES = ("license", "licence", "copying", "notice", "unlicense", "copyright")


def reachable(metadata, root):
    """The packages that are linked into the root: no tools of builds, no tests."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, left = set(), [root]
    while left:
        package = left.pop()
        if package in found:
            continue
        found.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                left.append(dependency["pkg"])
    return found


def component(package):
    of = {"type": "library", "name": package["name"], "version": package["version"]}
    of["purl"] = f"pkg:cargo/{package['name']}@{package['version']}"
    of["bom-ref"] = of["purl"]
    if package["license"]:
        # Before SPDX had expressions, a slash meant a choice.
        of["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return of


def copy_licences(package, directory):
    source = pathlib.Path(package["manifest_path"]).parent
    files = [it for it in source.iterdir() if it.is_file() and it.name.lower().startswith(LICENCES)]
    if not files and not package["license"]:
        sys.exit(f"{package['name']} {package['version']} has no licence")
    directory.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, directory / file.name)
    if not files:
        (directory / "LICENSE").write_text(package["license"] + "\n")


def main(name, triple, directory):
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", triple]
    metadata = json.loads(subprocess.check_output(command))
    root = next(it for it in metadata["packages"] if it["name"] == name)
    linked = reachable(metadata, root["id"])
    packages = [it for it in metadata["packages"] if it["id"] in linked]
    packages.sort(key=lambda it: (it["name"], it["version"]))
    directory = pathlib.Path(directory)
    shutil.copyfile(pathlib.Path(metadata["workspace_root"]) / "LICENSE", directory / "LICENSE")
    others = [it for it in packages if it["source"]]
    for package in others:
        copy_licences(package, directory / "licenses" / f"{package['name']}-{package['version']}")
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root) | {"type": "application"}},
        "components": [component(it) for it in packages if it["id"] != root["id"]],
    }
    (directory / "sbom.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
