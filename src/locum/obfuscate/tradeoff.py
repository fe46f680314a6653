"""Sweeping the knobs: judge every setting, resume after a crash, and return the curve."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from locum.errors import CheckpointError, ConfigError, DataError
from locum.io import write_bytes
from locum.obfuscate.curve import Point, TradeOff
from locum.obfuscate.evaluation import Judgment, Originals, make_judges
from locum.obfuscate.labels import Labeled, Masking
from locum.types import Progress, encode_labels, no_progress

Array = npt.NDArray[Any]
# A setting: a name, or knobs with their values, such as (("noise", 3.0), ("lambda_", -50.0)).
Knobs = str | tuple[tuple[str, float], ...]
Rows = tuple[Any, Any, Any]
PathLike = str | os.PathLike[str]

_FORMAT = 2
# Rows whose release identifies a fitted obfuscator.
_PROBE = 64


class Obfuscates(Protocol):
    """What judges need of a fitted obfuscator."""

    def matrix(self, X: Any) -> Array:
        """The rows as numbers between 0 and 1."""
        ...

    def codes(self, utility: Any) -> Array:
        """Codes of utility labels."""
        ...

    def masking(self, *, noise: float, lambda_: float) -> Masking:
        """One setting of the knobs."""
        ...


def trade_off(
    obfuscator: Obfuscates,
    train: Rows,
    test: Rows,
    *,
    noises: Sequence[float],
    lambdas: Sequence[float],
    judges: Sequence[str] | None = None,
    seed: int = 0,
    copies: int = 10,
    epochs: int | None = None,
    state: PathLike | None = None,
    progress: Progress | None = None,
) -> TradeOff:
    """Judge a fitted obfuscator at every pair of noise and lambda.

    Parameters
    ----------
    obfuscator
        Fitted on `train` or on other rows, never on `test`.
    train, test
        Triples (rows, utility labels, private labels), with rows as the obfuscator takes them. Judges train on
        `train` and are tested on `test`. The private labels are for judging; the obfuscator never sees them.
    noises, lambdas
        Values of the two knobs.
    judges, seed, copies, epochs
        As in `judge`.
    state
        A private file with the points done so far: the same call resumes from it. Points can be added; a state from
        other data, settings or weights is refused.
    progress
        Called as each judge is done with a point; the note names both.

    Returns
    -------
    TradeOff
        One point per pair. Private: it depends on the test rows.

    Examples
    --------
    >>> from locum.obfuscate import trade_off
    >>> found = trade_off(  # doctest: +SKIP
    ...     model, (patients, smoker, sex), (others, others_smoke, others_sex), noises=[1, 5], lambdas=[-50]
    ... )
    >>> found.pick(attacker_at_most=0.6).knobs  # doctest: +SKIP
    """
    if not len(noises) or not len(lambdas):
        raise ConfigError("`noises` and `lambdas` must hold at least one value each; got none.")
    parts = [(obfuscator.matrix(X), np.asarray(obfuscator.codes(utility))) for X, utility, _ in (train, test)]
    rows = [Labeled(*p, private) for p, private in zip(parts, _private(train[2], test[2]), strict=True)]
    maskings: dict[Knobs, Masking] = {
        (("noise", float(noise)), ("lambda_", float(lambda_))): obfuscator.masking(noise=noise, lambda_=lambda_)
        for lambda_ in lambdas
        for noise in noises
    }
    identity = "" if state is None else _fingerprint(obfuscator.masking(noise=1.0, lambda_=-1.0), rows[0])
    return sweep(
        maskings,
        *rows,
        judges=judges,
        seed=seed,
        copies=copies,
        epochs=epochs,
        state=state,
        identity=identity,
        progress=progress,
    )


def sweep(
    maskings: Mapping[Knobs, Masking],
    train: Labeled,
    test: Labeled,
    *,
    judges: Sequence[str] | None = None,
    seed: int = 0,
    copies: int = 10,
    epochs: int | None = None,
    state: PathLike | None = None,
    identity: str = "",
    progress: Progress | None = None,
) -> TradeOff:
    """Judge each masking on the same rows, with the same judges and seeds.

    What judges find in the original rows is learned once. A masking is not called for a point already in `state`, so
    one that trains when first called does not train.

    Parameters
    ----------
    maskings
        Functions of rows, utility codes and an rng. Keys are names, or knobs with their values, such as
        `(("noise", 3.0), ("lambda_", -50.0))`.
    train, test
        Rows that judges train on and are tested on.
    judges, seed, copies, epochs
        As in `judge`.
    state
        A private file with the points done so far: the same call resumes from it.
    identity
        Identifies the maskings, such as a hash of weights: a `state` with another identity is refused.
    progress
        Called as each judge is done with a point; the note names both.

    Returns
    -------
    TradeOff
        One point per masking. Private: it depends on the test rows.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.obfuscate import Labeled, sweep
    >>> rng = np.random.default_rng(0)
    >>> rows = [Labeled(rng.random((100, 2)), np.arange(100) % 2, np.arange(100) // 50) for _ in range(2)]
    >>> found = sweep({"all": lambda X, utility, rng: X * 0}, *rows, judges=["trees"], copies=1)
    >>> found.points[0].name
    'all'
    """
    named = {_name(knobs): knobs for knobs in maskings}
    if len(named) < len(maskings) or not maskings:
        raise ConfigError("A sweep needs at least one setting, each with a different name.")
    kinds = sorted(make_judges(judges, train.X, epochs))
    settings = {
        "judges": kinds,
        "seed": seed,
        "copies": copies,
        "epochs": epochs,
        "identity": identity,
    }
    done = _State.open(Path(state), settings, train, test) if state is not None else _State(None, "", {})
    missing = [name for name in named if name not in done.points]
    report = progress or no_progress
    # Each judge attacks, attacks with several releases, and receives.
    steps = len(kinds) * (3 if copies > 1 else 2)
    finished, total = (len(named) - len(missing)) * steps, len(named) * steps
    report(finished, total, "started")
    if missing:
        originals = Originals.learn(train, test, judges, seed, epochs)
        for name in missing:

            def step(what: str, name: str = name) -> None:
                nonlocal finished
                finished += 1
                report(finished, total, f"{name}: {what}")

            done.add(name, originals.judge(maskings[named[name]], copies, step))
    return TradeOff(tuple(Point(name, _values(knobs), done.points[name]) for name, knobs in named.items()))


@dataclass(frozen=True, slots=True)
class _State:
    """The judgments so far, in a file that is replaced atomically after each; in memory only if there is no path."""

    path: Path | None
    key: str
    points: dict[str, Judgment]

    @classmethod
    def open(cls, path: Path, settings: Mapping[str, Any], train: Labeled, test: Labeled) -> _State:
        """The state of this sweep; called before any work, so that a wrong path is reported at once."""
        key = _key(settings, train, test)
        if not path.is_file():
            state = cls(path, key, {})
            state._write()
            return state
        try:
            saved = json.loads(path.read_bytes())
            found, version = saved["key"], saved["format"]
            points = {name: Judgment.from_dict(point) for name, point in saved["points"].items()}
        except OSError:
            raise CheckpointError(f"{path} cannot be read: check its permissions.") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CheckpointError(f"{path} is damaged, or is not the state of a trade-off: remove it.") from None
        if version != _FORMAT or found != key:
            raise CheckpointError(
                f"{path} holds a trade-off of other data, settings or weights: choose another path, or remove it."
            )
        return cls(path, key, points)

    def add(self, name: str, found: Judgment) -> None:
        """Add one, and write it to disk before the next begins."""
        self.points[name] = found
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            points = {name: found.to_dict() for name, found in self.points.items()}
            text = json.dumps({"format": _FORMAT, "key": self.key, "points": points})
            write_bytes(str(self.path), text.encode())


def _key(settings: Mapping[str, Any], *parts: Labeled) -> str:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for part in parts:
        for array in (part.X, part.utility, part.private):
            digest.update(f"{array.shape} {array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _fingerprint(masking: Masking, rows: Labeled) -> str:
    """A hash of a release of a few rows with a fixed seed: other weights give another hash."""
    few = rows.take(np.arange(min(_PROBE, len(rows))))
    made = masking(few.X, few.utility, np.random.default_rng(0))
    return hashlib.sha256(np.ascontiguousarray(made).tobytes()).hexdigest()


def _private(train: Any, test: Any) -> tuple[Array, Array]:
    """Codes from 0, by the labels of `train`."""
    codes, names = encode_labels(train)
    if unknown := [name for name in encode_labels(test)[1] if name not in names]:
        raise DataError(
            f"The private label {unknown[0]!r} is in the test rows and in no training row: no attacker could learn "
            "it. Split the rows so that each label is in both, or leave it out."
        )
    return codes, encode_labels(test, names)[0]


def _name(knobs: Knobs) -> str:
    # Enough digits that no two settings share a name, and so a place in the state.
    return knobs if isinstance(knobs, str) else ", ".join(f"{k.strip('_')} {v:.12g}" for k, v in knobs)


def _values(knobs: Knobs) -> dict[str, float]:
    return {} if isinstance(knobs, str) else dict(knobs)
