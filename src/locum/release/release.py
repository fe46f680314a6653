"""A release in memory: opened after all checks, saved atomically, sampled with numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.release.card import render_card
from locum.release.decoders import check_tensors, decode, flush_subnormals
from locum.release.folder import read_folder, write_folder
from locum.release.manifest import Manifest, to_space
from locum.release.passport.files import read_passport_files
from locum.types import EmbeddingInfo, EmbeddingSet, PrivacyClaim

if TYPE_CHECKING:
    from locum.release.stream import ReleaseStream


CHUNK = 8192
Seed = int | np.random.Generator | None


@dataclass(frozen=True, eq=False)
class Release:
    """What leaves the data holder: a manifest and the tensors that it describes.

    It can be sampled without the data, without torch and without the code that trained it. Without a seed every call
    starts from the operating system's entropy. What protects the records behind it is its claim, and nothing else.

    Parameters
    ----------
    manifest
        What the release is, and what it guarantees.
    tensors
        The numbers of the decoder, or the rows of a fixed table, by name.
    fingerprint
        SHA-256 of the manifest in the folder; None if the release was not read from one.
    bind
        Called by `save` with the fingerprint before the folder is in its place: it notes in the ledger what a charge
        paid for. None: nothing to note.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> X, y = np.random.default_rng(0).normal(size=(20, 3)), np.repeat(["cat", "dog"], 10)
    >>> release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    >>> vectors, labels = release.sample(per_class={"cat": 2, "dog": 1}, random_state=0)
    >>> vectors.shape, sorted(labels.tolist())
    ((3, 3), ['cat', 'cat', 'dog'])
    """

    manifest: Manifest
    tensors: Mapping[str, npt.NDArray[Any]]
    fingerprint: str | None = None
    bind: Callable[[str], None] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_tensors(self.manifest, self.tensors)

    @classmethod
    def open(cls, path: str | Path) -> Release:
        """Read and check a folder; see `load`."""
        found = read_folder(Path(path))
        read_passport_files(Path(path), found.manifest, found.fingerprint)
        return cls(found.manifest, found.tensors, found.fingerprint)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the folder atomically; an existing release is replaced only with `overwrite`."""
        target = Path(path)
        card = render_card(self.manifest)
        write_folder(target, self.manifest, self.tensors, card, overwrite=overwrite, bind=self.bind)
        return target

    @property
    def claim(self) -> PrivacyClaim:
        """What the release guarantees, and what it does not."""
        return self.manifest.claim

    @property
    def info(self) -> EmbeddingInfo:
        """Backbone, preprocessing and class names of the vectors."""
        return self.manifest.embedding.info(self.manifest.class_names)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """The labels that `sample` returns."""
        return np.asarray(self.manifest.classes)

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Bring real vectors into the space of the released ones; required wherever the two are mixed."""
        a = np.asarray(X, dtype=np.float32)
        if a.ndim != 2 or a.shape[1] != self.manifest.embedding.dim:
            raise DataError(
                f"The release's vectors have {self.manifest.embedding.dim} features; got shape {a.shape}. "
                "Embed the data with the backbone that the release names."
            )
        return to_space(a, self.manifest.space)

    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        attributes: Mapping[str, str] | None = None,
        random_state: Seed = None,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
        """Draw fresh vectors and their labels.

        A release of kind "data" returns its rows without replacement, by default all of them.

        Parameters
        ----------
        n
            How many; labels are drawn by the released prior.
        per_class
            How many of each label, instead of `n`.
        variance
            Sampling variance; None: the release's own. Values below 1 give more typical vectors.
        attributes
            Fixes conditions: the value of each, by name.
        random_state
            Seed or generator; None: the operating system's entropy.

        Returns
        -------
        X : ndarray of shape (n, d)
            The vectors, in the release's space.
        y : ndarray of shape (n,)
            Their labels.
        """
        X, codes = self._draw(n, per_class, variance, attributes, np.random.default_rng(random_state))
        return X, self.classes[codes[:, 0]]

    def sample_set(self, n: int | None = None, *, random_state: Seed = None, **options: Any) -> EmbeddingSet:
        """The same draw as `sample`, with attributes, class names and source attached."""
        rng = np.random.default_rng(random_state)
        known = {"per_class": None, "variance": None, "attributes": None}
        if unknown := set(options) - set(known):
            raise ConfigError(f"sample_set takes {', '.join(known)}; got {sorted(unknown)[0]!r}.")
        X, codes = self._draw(n, **{**known, **options}, rng=rng)
        columns = {c.name: np.asarray(c.values)[codes[:, i + 1]] for i, c in enumerate(self.manifest.conditions)}
        return EmbeddingSet(X, codes[:, 0], attributes=columns, info=self.info)

    def stream(
        self, batch_size: int = 256, *, variance: float | None = None, random_state: int | None = None
    ) -> ReleaseStream:
        """An endless torch dataset of fresh batches; nothing is stored."""
        from locum.release.stream import ReleaseStream  # torch

        return ReleaseStream(self, batch_size=batch_size, variance=variance, random_state=random_state)

    def batches(self, batch_size: int, variance: float | None, rng: np.random.Generator) -> Iterator[Any]:
        """Endless numpy batches of vectors and class codes; `stream` wraps them for torch."""
        if self.manifest.kind == "data":
            raise ConfigError("A release of kind 'data' holds a fixed table and cannot be streamed; use sample().")
        if batch_size < 1:
            raise ConfigError(f"`batch_size` must be 1 or more; got {batch_size!r}.")
        while True:
            X, codes = self._draw(batch_size, None, variance, None, rng)
            yield X, codes[:, 0]

    def _draw(
        self,
        n: int | None,
        per_class: Mapping[Any, int] | None,
        variance: float | None,
        attributes: Mapping[str, str] | None,
        rng: np.random.Generator,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        if n is not None and per_class is not None:
            raise ConfigError("Give `n` or `per_class`, not both.")
        if n is not None and n < 1:
            raise ConfigError(f"`n` must be 1 or more; got {n!r}.")
        counts = None if per_class is None else self._counts(per_class)
        if self.manifest.kind == "data":
            if variance is not None or attributes:
                raise ConfigError(
                    "A release of kind 'data' is a fixed table: it takes no variance and no attributes."
                )
            return self._rows(n, counts, rng)
        codes = self._codes(n, counts, attributes or {}, rng)
        v = self.manifest.decoder.variance if variance is None else float(variance)  # type: ignore[union-attr]
        if not 0 <= v < np.inf:
            raise ConfigError(f"`variance` must be 0 or more; got {variance!r}. 1 is what training assumed.")
        out = np.empty((len(codes), self.manifest.embedding.dim), dtype=np.float32)
        for start in range(0, len(codes), CHUNK):
            part = slice(start, start + CHUNK)
            out[part] = decode(self.manifest, self.tensors, codes[part], v, rng)
        # Last: dividing by the length of a vector can make a small number smaller.
        return flush_subnormals(to_space(out, self.manifest.space)), codes

    def _counts(self, per_class: Mapping[Any, int]) -> npt.NDArray[np.int64]:
        place = {label: i for i, label in enumerate(self.manifest.classes)}
        counts = np.zeros(len(place), dtype=np.int64)
        for label, count in per_class.items():
            key = label.item() if isinstance(label, np.generic) else label
            if key not in place:
                raise ConfigError(f"The release has no class {label!r}; it has {list(place)[:10]}.")
            if isinstance(count, bool) or int(count) != count or count < 0:
                raise ConfigError(f"The count for class {label!r} must be a whole number, 0 or more; got {count!r}.")
            counts[place[key]] = count
        if counts.sum() == 0:
            raise ConfigError("`per_class` asks for no vectors; give at least one class a count.")
        return counts

    def _codes(
        self,
        n: int | None,
        counts: npt.NDArray[np.int64] | None,
        attributes: Mapping[str, str],
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        """Draw class and conditions of each vector."""
        table = np.array([codes for codes, _ in self.manifest.joint], dtype=np.int64)
        p = np.array([weight for _, weight in self.manifest.joint])
        names = [c.name for c in self.manifest.conditions]
        for name, value in attributes.items():
            if name not in names:
                raise ConfigError(
                    f"The release is not conditioned on {name!r}; it knows {names or 'the class only'}."
                )
            values = self.manifest.conditions[names.index(name)].values
            if str(value) not in values:
                raise ConfigError(f"{name!r} can be one of {list(values)[:10]}; got {value!r}.")
            column = 1 + names.index(name)
            kept = table[:, column] == values.index(str(value))
            table, p = table[kept], p[kept]
        if not len(table):
            raise ConfigError(
                f"No record had all of {dict(attributes)}, so there are no such vectors: leave one out."
            )
        if n is None and counts is None:
            raise ConfigError("Say how many: `n` for labels by the prior, or `per_class` for exact counts.")
        if counts is None:
            return table[rng.choice(len(table), size=int(n or 0), p=p / p.sum())]
        parts = []
        for c in np.flatnonzero(counts):
            mine = table[:, 0] == c
            rows = np.flatnonzero(mine)
            if not len(rows):
                name = self.manifest.class_names[c]
                raise ConfigError(f"No record of class {name!r} had these attributes: leave out one or the other.")
            w = np.maximum(p[rows], 1e-12)
            parts.append(table[rng.choice(rows, size=counts[c], p=w / w.sum())])
        return rng.permutation(np.concatenate(parts))

    def _rows(
        self, n: int | None, counts: npt.NDArray[np.int64] | None, rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        X, codes = self.tensors["X"], self.tensors["codes"].astype(np.int64)
        if counts is None:
            if n is not None and n > len(X):
                raise ConfigError(f"The release holds {len(X)} rows, and each is drawn once; got n={n}.")
            pick = rng.permutation(len(X))[: len(X) if n is None else n]
        else:
            parts = []
            for c in np.flatnonzero(counts):
                rows = np.flatnonzero(codes[:, 0] == c)
                if counts[c] > len(rows):
                    raise ConfigError(
                        f"The release holds {len(rows)} rows of class {self.manifest.class_names[c]!r}; "
                        f"got a count of {counts[c]}."
                    )
                parts.append(rng.choice(rows, size=counts[c], replace=False))
            pick = rng.permutation(np.concatenate(parts))
        return flush_subnormals(X[pick].astype(np.float32)), codes[pick]


def load(path: str | Path) -> Release:
    """Open a release folder after checking its hashes, schema and numbers.

    This shows that the folder is intact, not who made it: for that, check the signature with `verify`.

    Parameters
    ----------
    path
        The folder.

    Returns
    -------
    Release
        Ready to be sampled.

    Raises
    ------
    ReleaseError
        If the folder is not an intact release.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import load
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("load")
    >>> load(path).classes.tolist()
    [0, 1]
    """
    return Release.open(path)
