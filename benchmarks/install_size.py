"""What an installation weighs: the wheel without extras, and with each of them, in fresh environments.

    python benchmarks/install_size.py [--quick] [--extras fit,images,all]

Builds the wheel, installs it into empty environments and adds up site-packages, without pip itself. The peer is
what `load().sample()` needs: numpy, safetensors and pydantic. Needs a package index and some minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
LEAST = ["numpy", "safetensors", "pydantic"]


def weigh(folder: Path, requirements: list[str]) -> tuple[float, int]:
    """Megabytes and packages of an environment with just these requirements."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [*pip, "install", "--constraint", str(HERE / "constraints.txt"), *requirements],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    site = next((folder / "lib").glob("python*/site-packages"))
    ours = [
        p
        for p in site.rglob("*")
        if p.is_file() and p.relative_to(site).parts[0].split("-")[0] not in ("pip", "setuptools")
    ]
    # Without --quiet, which would leave the list out.
    shown = subprocess.run(
        [*pip[:-1], "list", "--format", "freeze"], check=True, capture_output=True, text=True
    ).stdout
    packages = [line for line in shown.splitlines() if line.split("==")[0] not in ("pip", "setuptools")]
    return sum(p.stat().st_size for p in ours) / 1e6, len(packages)


def main() -> None:
    """Print megabytes and packages of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default="fit,images,train,all", help="comma-separated; empty for none")
    parser.add_argument("--quick", action="store_true", help="the core alone")
    chosen = parser.parse_args()
    extras = "" if chosen.quick else chosen.extras
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(
            [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", work, str(HERE)],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        wheel = str(next(Path(work).glob("*.whl")))
        least, packages = weigh(Path(work) / "least", LEAST)
        print(f"{'numpy, safetensors, pydantic':32} {least:7.0f} MB {packages:4} packages")
        for extra in ["", *filter(None, extras.split(","))]:
            name = f"locum[{extra}]" if extra else "locum"
            size, packages = weigh(Path(work) / (extra or "core"), [f"{wheel}[{extra}]" if extra else wheel])
            print(f"{name:32} {size:7.0f} MB {packages:4} packages  {size / least:5.1f} x")


if __name__ == "__main__":
    main()
