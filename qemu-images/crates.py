#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The crates that our programs are made of.

crates.py check
    Fails if a crate breaks a rule of userspace-tools/deny.toml.
crates.py notices PROGRAM...
    Prints the licences of the crates and libraries that are linked into these packages of the workspace.
crates.py sbom [--with NAME=VERSION=LICENCE]... PROGRAM...
    Prints the same crates as CycloneDX JSON, and other parts of a bundle after them.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
TOOLS = TOP / "userspace-tools"
TARGET = "x86_64-unknown-linux-gnu"
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
# For a crate under MIT without a license file.
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def fail(message, hint):
    sys.exit(f"xdc: error: {message}\nxdc: try: {hint}")


def run(*command, cwd=TOOLS):
    done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE)
    if done.returncode != 0:
        fail(f"{' '.join(command[:2])} failed in {cwd}", "make setup, and look at the lines above")
    return done.stdout


def tree(*args, folder=TOOLS):
    """(name, version) of the crates of a dependency tree, and their licences."""
    lines = run("cargo", "tree", "--locked", "--target", TARGET, "--prefix", "none", "--format", "{p}|{l}", *args, cwd=folder)
    crates = {}
    for line in filter(None, lines.splitlines()):
        package, licence = line.removesuffix(" (*)").split("|")
        name, version = package.split()[:2]
        crates[name, version.removeprefix("v")] = licence
    return crates


def linked(programs):
    """Crates in these programs, without the ones that only run at compile time."""
    crates = {}
    for program in programs:
        crates |= tree("--edges", "normal,no-proc-macro", "--package", program, folder=workspace(program))
    return crates


def workspace(program):
    return TOOLS / "ebpf" if program.endswith("-ebpf") else TOOLS


def locked(folder):
    return tomllib.loads((folder / "Cargo.lock").read_text())["package"]


def satisfied(licence, allowed):
    """Returns whether an SPDX expression holds with these licenses; `/` is the old form of OR."""

    def value(match):
        words = {"OR": "or", "AND": "and"}
        return words.get(match[0].strip(), str(match[0] in allowed))

    expression = re.sub(r"[\w.+-]+( WITH [\w.-]+)?", value, licence.replace("/", " OR "))
    return bool(re.fullmatch(r"[()\w ]+", expression)) and eval(expression)  # noqa: S307 (True, False, and, or)


def check_sources(folder):
    for package in locked(folder):
        crate = f"{package['name']} {package['version']}"
        if package.get("source", REGISTRY) != REGISTRY:
            yield f"{crate} is not from crates.io but {package['source']}"
        elif "source" in package and "checksum" not in package:
            yield f"{crate} has no checksum"


def check_crates(folder, rules):
    crates = tree("--workspace", folder=folder)
    versions = {}
    for (name, version), licence in sorted(crates.items()):
        versions.setdefault(name, []).append(version)
        if not satisfied(licence, rules["licenses"]["allow"]):
            yield f"{name} {version} has the licence {licence or 'none'}, which deny.toml does not allow"
    skipped = [skip["crate"].split("@") for skip in rules["bans"]["skip"]]
    for name, found in versions.items():
        rest = [v for v in found if not any(name == n and (v + ".").startswith(s + ".") for n, s in skipped)]
        if len(rest) > 1:
            yield f"{name} is there as {' and '.join(rest)}"


def wildcards(manifest):
    """Dependencies that any version satisfies."""
    toml = tomllib.loads(manifest.read_text())
    tables = [toml, toml.get("workspace", {}), *toml.get("target", {}).values()]
    for table in tables:
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            for name, value in table.get(kind, {}).items():
                value = {"version": value} if isinstance(value, str) else value
                if "*" in value.get("version", "") or not value.keys() & {"version", "path", "workspace"}:
                    yield f"{manifest.relative_to(TOP)}: {name} may have any version"


def check():
    rules = tomllib.loads((TOOLS / "deny.toml").read_text())
    folders = [(TOP / line).parent for line in run("git", "ls-files", "*Cargo.lock", cwd=TOP).splitlines()]
    if not folders:
        fail("git lists no Cargo.lock", "a checkout by git")
    wrong = [line for folder in folders for line in check_sources(folder)]
    for manifest in run("git", "ls-files", "*Cargo.toml", cwd=TOP).splitlines():
        wrong += wildcards(TOP / manifest)
    # Only after the check above, so that cargo fetches nothing from another registry.
    wrong = wrong or [line for folder in folders for line in check_crates(folder, rules)]
    print("\n".join(sorted(set(wrong))) or f"the crates of {len(folders)} Cargo.lock keep the rules")
    return bool(wrong)


def owner(path):
    """Returns Debian's copyright file of the package that owns a file."""
    found = subprocess.run(["dpkg", "-S", Path(path).resolve()], capture_output=True, text=True).stdout
    copyright = Path("/usr/share/doc") / found.split(":")[0] / "copyright"
    return copyright if found and copyright.exists() else None


def libraries():
    """Copyright files of the libraries linked into each program: Rust's standard library, libc and libgcc."""
    sysroot = Path(run("rustc", "--print", "sysroot").strip())
    std = next((sysroot / "lib/rustlib" / TARGET / "lib").glob("libstd-*.rlib"), None)
    whole = sysroot / "share/doc/rust/COPYRIGHT-library.html"
    yield "Rust's standard library", std and owner(std) or (whole if whole.exists() else None)
    for name, file in (("The C library", "libc.a"), ("gcc's library", "libgcc_eh.a")):
        yield name, owner(run("cc", f"-print-file-name={file}").strip())


def notices(programs):
    folders = {}
    metadata = ("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET)
    for folder in set(map(workspace, programs)):
        for package in json.loads(run(*metadata, cwd=folder))["packages"]:
            folders[package["name"], package["version"]] = (Path(package["manifest_path"]).parent, package)
    texts = {}
    for (name, version), licence in sorted(linked(programs).items()):
        folder, package = folders[name, version]
        if not package["source"]:
            continue
        files = [f for f in sorted(folder.iterdir()) if re.match(r"(un)?licen[cs]e|copying|copyright|notice", f.name, re.I) and f.is_file()]
        text = "\n".join(f.read_text(errors="replace").strip() for f in files)
        if not text:
            if not satisfied(licence, ["MIT"]):
                fail(f"{name} {version} has no file with its licence {licence}", "a text for it in qemu-images/crates.py")
            text = f"Copyright (c) {', '.join(package['authors']) or f'the authors of {name}'}\n\n{MIT.strip()}"
        texts.setdefault(text, []).append(f"{name} {version} ({licence})")
    print("# Software of others in these programs\n")
    for text, crates in sorted(texts.items(), key=lambda it: it[1]):
        print(f"{'=' * 80}\n{chr(10).join(crates)}\n\n{text}\n")
    for name, file in libraries():
        if file is None:
            fail(
                f"the licence of {name} is not on this machine",
                "Debian's packages of rustc and libc6-dev, or rustup's component rust-docs",
            )
        print(f"{'=' * 80}\n{name}\n\n{file.read_text(errors='replace').strip()}\n")


def sbom(args):
    others, programs = [], []
    while args:
        word = args.pop(0)
        if word == "--with":
            others.append(args.pop(0).split("="))
        else:
            programs.append(word)
    packages = [package for folder in set(map(workspace, programs)) for package in locked(folder)]
    hashes = {(p["name"], p["version"]): p.get("checksum") for p in packages}
    components = []
    for (name, version), licence in sorted(linked(programs).items()):
        component = {
            "type": "library",
            "name": name,
            "version": version,
            "licenses": [{"expression": licence.replace("/", " OR ")}],
        }
        if sha256 := hashes[name, version]:
            component["bom-ref"] = component["purl"] = f"pkg:cargo/{name}@{version}"
            component["hashes"] = [{"alg": "SHA-256", "content": sha256}]
        components.append(component)
    for name, version, licence in others:
        components.append({"type": "library", "name": name, "version": version, "licenses": [{"expression": licence}]})
    version = tomllib.loads((TOOLS / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "xdc", "version": version}},
        "components": components,
    }
    print(json.dumps(bom, indent=1))


match sys.argv[1:]:
    case ["check"]:
        sys.exit(check())
    case ["notices", _, *_]:
        notices(sys.argv[2:])
    case ["sbom", _, *_]:
        sbom(sys.argv[2:])
    case _:
        sys.exit(__doc__)
