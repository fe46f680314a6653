"""Feed damaged and forged files to everything that reads files from outside, and see that each is refused in words.

    python scripts/fuzz.py [--mutations 20000] [--seed 0] [--only release]

Each target has a valid file; a mutation flips, cuts, repeats or replaces bytes, or, in JSON and TOML, puts an
outlandish value in place of another. A reader may accept the result or raise a `LocumError`. Anything else, more than
10 seconds, or more than 1 GB (the address space is limited before the first read) is a fault: its file is kept in
`out/fuzz`.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locum.errors import LocumError

SECONDS = 10
BYTES = 2**30
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**18, 2**63, "", "\x00", "a" * 70000, "../../etc/passwd",
    [], {}, [[[[]]]], {"a": {"a": {}}}, [0] * 5000, "nan", -0.0, 1e-320,
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A file to mutate, and what reads it."""

    file: Path
    read: Callable[[], object]


class HungError(Exception):
    """A reader took too long."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise `HungError` after some seconds."""

    def stop(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def make_targets(folder: Path) -> dict[str, Target]:
    """One valid file of each kind, and its reader."""
    from locum import EmbeddingSet, load
    from locum.audit import load_policy
    from locum.data import read_splits, write_embeddings
    from locum.federated import FederationSettings
    from locum.generate import ClassGaussian
    from locum.obfuscate import TableObfuscator, open_obfuscator, save_obfuscator
    from locum.recipes import (
        audit_data,
        make_key_pair,
        show_ledger,
        sign_release,
        train_head,
        verify_release,
        write_passport,
    )
    from locum.types import DP

    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    for name in ("members", "others"):
        X = (rng.normal(size=(120, 4)) + y[:, None]).astype(np.float32)
        write_embeddings(folder / f"{name}.npz", EmbeddingSet(X, y))
    ledger, release = folder / "ledger.sqlite", folder / "release"
    model = ClassGaussian(privacy=DP(1.0, 1e-5, n_public=120), classes=[0, 1], ledger=ledger).fit(X, y)
    model.release().save(release)
    audit = folder / "audit.json"
    sets = (str(folder / "members.npz"), str(folder / "others.npz"))
    audit_data(release, *sets, out=audit, policy="internal", seed=0, attacks=["nearest distance"])
    shutil.copytree(release, folder / "second")
    write_passport(release, audit=audit)
    make_key_pair(folder / "key")
    sign_release(release, folder / "key", override="a test")
    head = folder / "head.safetensors"
    train_head(release, head, samples=200)
    from locum.heads import SavedHead

    for suffix in ("csv", "parquet", "safetensors"):
        write_embeddings(folder / f"data.{suffix}", EmbeddingSet(X, y))
    import pandas as pd

    table = pd.DataFrame({"age": rng.integers(20, 60, 200).astype(float), "sex": rng.choice(["f", "m"], 200)})
    keeper = TableObfuscator(max_epochs=1, random_state=0).fit(table, rng.integers(0, 2, 200))
    save_obfuscator(keeper, folder / "obfuscator")
    policy = folder / "policy.toml"
    policy.write_text('name = "ours"\nsummary = "a test"\n[auc]\nat_most = 0.6\nreason = "a test"\n')
    terms = folder / "federation.toml"
    terms.write_text('dim = 4\nmode = "sums"\nrounds = 3\nclasses = ["a", "b"]\n')

    def read_release() -> object:
        return load(release), verify_release(release, ledger=ledger, key=folder / "key.pub")

    names = ("manifest.json", "decoder.safetensors", "passport.json", "signature.json")
    out = {name: Target(release / name, read_release) for name in names}
    out["head"] = Target(head, lambda: SavedHead.open(head))
    out["ledger"] = Target(ledger, lambda: show_ledger(ledger))
    out["audit"] = Target(audit, lambda: write_passport(folder / "second", audit=audit, overwrite=True))
    out["policy"] = Target(policy, lambda: load_policy(policy))
    out["terms"] = Target(terms, lambda: FederationSettings.read(terms))
    for name in ("manifest.json", "obfuscator.safetensors"):
        out[f"obfuscator {name}"] = Target(
            folder / "obfuscator" / name, lambda: open_obfuscator(folder / "obfuscator")
        )
    for name in ("members.npz", "data.csv", "data.parquet", "data.safetensors"):
        file = folder / name
        out[name] = Target(file, lambda file=file: read_splits(str(file)))  # type: ignore[misc]
    return out


def mutate(raw: bytes, rng: np.random.Generator) -> bytes:
    """One or a few changes."""
    if raw[:1] == b"{" and rng.random() < 0.6:
        return _mutate_json(raw, rng)
    out = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, max(1, len(out))))
        kind = int(rng.integers(0, 6))
        if kind == 0 and out:
            out[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del out[at : at + int(rng.integers(1, 64))]
        elif kind == 2:
            out[at:at] = out[at : at + int(rng.integers(1, 256))] * int(rng.integers(1, 20))
        elif kind == 3:
            out[at:at] = rng.bytes(int(rng.integers(1, 32)))
        elif kind == 4:
            out[at : at + 8] = b"\xff" * 8
        else:
            out = out[:at]
    return bytes(out)


def _mutate_json(raw: bytes, rng: np.random.Generator) -> bytes:
    body = json.loads(raw)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(body)
    node, key = places[int(rng.integers(0, len(places)))]
    choice = int(rng.integers(0, 4))
    if choice == 0 and isinstance(node, dict):
        del node[key]
    elif choice == 1 and isinstance(node, dict):
        node[f"{key}x"] = node[key]
    else:
        node[key] = VALUES[int(rng.integers(0, len(VALUES)))]
    return json.dumps(body).encode()


def fuzz(targets: dict[str, Target], mutations: int, seed: int, keep: Path | None = None) -> list[str]:
    """Faults, one line each; every target gets its turn."""
    rng = np.random.default_rng(seed)
    faults, told = [], Counter[str]()
    originals = {name: target.file.read_bytes() for name, target in targets.items()}
    # What a reader may rewrite is put back before each turn.
    names = list(targets)
    for number in range(mutations):
        name = names[number % len(names)]
        target = targets[name]
        changed = mutate(originals[name], rng)
        target.file.write_bytes(changed)
        began = time.monotonic()
        try:
            with limited(SECONDS):
                target.read()
            told["accepted"] += 1
        except LocumError as error:
            told[type(error).__name__] += 1
            if "\n" in str(error).strip() or len(str(error)) > 2000:
                faults.append(f"{name} #{number}: a message of {len(str(error))} letters")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            faults.append(f"{name} #{number}: {type(error).__name__}: {str(error)[:200]}")
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{number}-{target.file.name}").write_bytes(changed)
        if time.monotonic() - began > SECONDS:
            faults.append(f"{name} #{number}: took {time.monotonic() - began:.0f} s")
        for other, raw in originals.items():
            if targets[other].file.read_bytes() != raw:
                targets[other].file.write_bytes(raw)
    print(f"{mutations} mutations of {len(names)} files: {dict(told.most_common())}, {len(faults)} faults")
    return faults


def main() -> None:
    """Print faults; exit with 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="only targets whose name holds this")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        targets = make_targets(Path(folder))
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        # Address space counts much that is never touched: what is mapped now, and a gigabyte more.
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + BYTES, mapped + BYTES))
        picked = {n: t for n, t in targets.items() if chosen.only is None or chosen.only in n}
        faults = fuzz(picked, chosen.mutations, chosen.seed, Path("out/fuzz"))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - used
    for line in faults:
        print(line)
    print(f"memory grew by {grown / 2**20:.0f} MB")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
