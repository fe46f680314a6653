"""Give every verb bad inputs, and print a table of how each was answered.

    python scripts/bad_inputs.py [--only fit]

A good answer is exit code 2 and one sentence on standard error, within 20 seconds, with nothing written. `2` stands
for it, `0` for an input that a verb may take, and `!` for a fault, which is listed below the table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SECONDS = 20
BAD = "BAD"

# Every verb, with the place of a bad input.
FILES = (
    "fit BAD --classes a,b -o out",
    "fit BAD --classes-public -o out",
    "fit BAD --no-dp -o out",
    "fit data.npz --no-dp --non-members BAD -o out",
    "fit BAD --generator cvae --n-public 60 --classes a,b -o out",
    "embed BAD -o out.npz",
    "ledger show --ledger BAD",
    "ledger set-budget BAD --epsilon 1 --delta 1e-5",
    "ledger export --ledger BAD -o out.json",
    "ledger backup --ledger BAD -o out.sqlite",
    "ledger restore BAD --ledger new.sqlite",
    "evaluate BAD --test data.npz",
    "evaluate release --test BAD",
    "audit BAD --members data.npz --non-members more.npz",
    "audit release --members BAD --non-members more.npz",
    "audit release --members data.npz --non-members more.npz --policy BAD",
    "report BAD -o out.html",
    "report release --train BAD -o out.html",
    "passport BAD",
    "passport release --audit BAD",
    "sign BAD --key key",
    "sign release --key BAD",
    "decide BAD --refuse --name n --reason r --key key",
    "decide release --refuse --name n --reason r --key BAD",
    "decide release --refuse --name n --reason r --key key --audit BAD",
    "verify BAD",
    "verify release --ledger BAD",
    "verify release --key BAD",
    "verify release --site-keys BAD",
    "verify release --decision BAD",
    "sample BAD -o out.npz",
    "train BAD -o new.safetensors",
    "predict BAD data.npz -o out.csv",
    "predict head.safetensors BAD -o out.csv",
    "rebalance BAD -o out.npz",
    "rebalance compare BAD --test data.npz",
    "obfuscate fit BAD --utility label -o out",
    "obfuscate apply BAD table.csv -o out.csv",
    "obfuscate apply obfuscator BAD -o out.csv",
    "obfuscate trade-off obfuscator BAD --private sex -o out",
    "federate coordinate BAD --keys keys -o out",
    "federate join BAD --coordinator localhost:1 --ca ca.crt --key key",
    "federate simulate BAD -o out",
    "federate merge BAD release -o out",
    "federate predict BAD data.npz",
    "data list --studies BAD",
    "data fetch thing --from BAD -o out",
)
VALUES = (
    "plan --epsilon BAD --delta 1e-5 --n-public 1000",
    "plan --epsilon 1 --delta BAD --n-public 1000",
    "plan --epsilon 1 --delta 1e-5 --n-public BAD",
    "fit data.npz --no-dp --holdout BAD -o out",
    "fit data.npz --classes a,b --generator BAD -o out",
    "fit data.npz --classes a,b --epsilon BAD -o out",
    "fit data.npz --classes a,b --delta BAD -o out",
    "fit data.npz --classes a,b --unit BAD -o out",
    "fit data.npz --classes BAD -o out",
    "sample release -n BAD -o out.npz",
    "evaluate release --test data.npz --samples BAD",
    "audit release --members data.npz --non-members more.npz --shadows BAD",
    "train release --samples BAD -o new.safetensors",
    "keygen BAD",
    "decide release --approve --name n --reason r --key key --confirm BAD",
    "ledger set-budget data.npz --epsilon BAD --delta 1e-5",
    "federate init BAD --classes a,b --dim 4",
    "federate certificates BAD",
    "federate key new-keys BAD",
    "federate simulate data.npz --sites BAD",
    "study run BAD",
    "data check BAD",
)


def bad_files(place: Path) -> dict[str, str]:
    """Sixteen names, and what is there."""
    rng = np.random.default_rng(0)
    y = np.array(["a", "b"] * 30)
    X = rng.normal(size=(60, 4)).astype(np.float32)
    (place / "folder").mkdir()
    (place / "nothing.npz").touch()
    (place / "noise.npz").write_bytes(rng.bytes(5000))
    (place / "text.npz").write_text("x,y\n1,2\n")
    (place / "deep.json").write_text("[" * 100_000)
    np.savez(place / "whole.npz", X=X, y=y)
    (place / "half.npz").write_bytes((place / "whole.npz").read_bytes()[:400])
    np.savez(place / "nan.npz", X=np.full_like(X, np.nan), y=y)
    np.savez(place / "one.npz", X=X[:1], y=y[:1])
    np.savez(place / "shapes.npz", X=X, y=y[:7])
    np.savez(place / "object.npz", X=np.array([{}], dtype=object), y=y)
    os.mkfifo(place / "pipe.npz")
    (place / "loop.npz").symlink_to("loop.npz")
    (place / "zero.npz").symlink_to("/dev/zero")
    return {
        "missing": "gone.npz",
        "no name": "",
        "folder": "folder",
        "empty": "nothing.npz",
        "noise": "noise.npz",
        "text": "text.npz",
        "deep": "deep.json",
        "half": "half.npz",
        "NaN": "nan.npz",
        "1 row": "one.npz",
        "shapes": "shapes.npz",
        "pickle": "object.npz",
        "pipe": "pipe.npz",
        "loop": "loop.npz",
        "device": "zero.npz",
        "long": "a" * 5000,
    }


def bad_values(place: Path) -> dict[str, str]:
    """Sixteen values that no option expects."""
    return {
        "none": "",
        "word": "abc",
        "nan": "nan",
        "inf": "inf",
        "-1": "-1",
        "-1e9": "-1e9",
        "1e999": "1e999",
        "2^63": str(2**63),
        "10^30": "1" + "0" * 30,
        "1e-400": "1e-400",
        "newline": "a\nb",
        "escape": "\x1b[31m",
        "option": "--",
        "accents": "é" * 400,
        "braces": "{}",
        "root": "/",
    }


def prepare(place: Path) -> None:
    """One good file of each kind."""
    import pandas as pd

    from locum import EmbeddingSet
    from locum.accounting import Ledger
    from locum.data import write_embeddings
    from locum.federated import make_certificates
    from locum.generate import ClassGaussian
    from locum.obfuscate import TableObfuscator, save_obfuscator
    from locum.recipes import make_key_pair, train_head

    rng = np.random.default_rng(0)
    for name in ("data", "more"):
        y = np.array(["a", "b"] * 150)
        X = rng.normal(size=(300, 4)) + (y == "a")[:, None]
        data = EmbeddingSet.from_arrays(X.astype(np.float32), y)
        write_embeddings(place / f"{name}.npz", data)
    ClassGaussian().fit(data.X, data.y).release(data.info, no_dp=True).save(place / "release")
    train_head(place / "release", place / "head.safetensors", samples=100)
    make_key_pair(place / "key")
    make_certificates(place / "keys", sites=["site-a", "site-b"])
    shutil.copy(place / "keys" / "ca.crt", place)
    Ledger(place / "ledger.sqlite").set_budget("default", epsilon=1.0, delta=1e-5)
    table = pd.DataFrame({"age": rng.integers(20, 60, 200).astype(float), "sex": rng.choice(["f", "m"], 200)})
    save_obfuscator(
        TableObfuscator(max_epochs=1, random_state=0).fit(table, rng.integers(0, 2, 200)), place / "obfuscator"
    )
    table.to_csv(place / "table.csv", index=False)


def listing(place: Path) -> set[str]:
    """Every name below a folder."""
    return {str(path) for path in place.rglob("*")}


def answer(words: list[str], place: Path) -> tuple[str, str]:
    """What the program says, as a sign for the table and, for a fault, in words; it runs in a fork."""
    before = listing(place)
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            _run(words, place, said.fileno())
        code = _wait(child)
        said.seek(0)
        text = said.read()
    made = sorted(Path(name).name for name in listing(place) - before)
    if code == 0:
        for name in made:
            target = place / name
            shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink(missing_ok=True)
        return "0", ""
    if code == 2 and text.startswith("error: ") and text.count("\n") == 1 and text[:-1].isprintable() and not made:
        return "2", text
    return "!", f"code {code}, wrote {made}, said {text[-300:]!r}"


def _run(words: list[str], place: Path, said: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(said, 2)
    os.chdir(place)
    sys.argv = ["locum", *words]
    try:
        from locum.cli.main import main

        main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(99)


def _wait(child: int) -> int:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


def run(lines: tuple[str, ...], inputs: Callable[[Path], dict[str, str]], only: str) -> list[str]:
    """Print one table, and return the faults."""
    faults = []
    with tempfile.TemporaryDirectory(prefix="locum-bad-") as folder:
        place = Path(folder)
        prepare(place)
        given = inputs(place)
        print("| verb | " + " | ".join(given) + " |")
        print("|---|" + "---|" * len(given))
        for line in lines:
            if not line.startswith(only):
                continue
            signs = []
            for name, value in given.items():
                sign, why = answer([value if word == BAD else word for word in line.split()], place)
                signs.append(sign)
                if sign == "!":
                    faults.append(f"{line} [{name}]: {why}")
            print(f"| `{line}` | " + " | ".join(signs) + " |", flush=True)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="lines that begin with this")
    only = parser.parse_args().only
    os.environ["OMP_NUM_THREADS"] = "1"
    faults = run(FILES, bad_files, only)
    print()
    faults += run(VALUES, bad_values, only)
    print(f"\n{len(faults)} faults")
    print("\n".join(faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
