"""A release in memory: opened after all checks, saved atomically, sampled with numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError, missing_extra
from locum.release.card import KINDS, render_card
from locum.release.decoders import check_tensors, decode, flush_subnormals
from locum.release.folder import read_folder, write_folder
from locum.release.manifest import Manifest, to_space
from locum.release.passport.files import read_passport_files
from locum.types import EmbeddingInfo, EmbeddingSet, PrivacyClaim, html_card

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from locum.release.stream import ReleaseStream


CHUNK = 8192
Seed = int | np.random.Generator | None
# What `sample` and `transform` return; see `Release.set_output`.
OUTPUTS = ("default", "pandas")


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
    output
        What `sample` and `transform` return: "default" (arrays) or "pandas"; `set_output` changes it.

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
    output: str = field(default="default", repr=False, compare=False)

    def __post_init__(self) -> None:
        check_tensors(self.manifest, self.tensors)
        _check_output(self.output)

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

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes as text, in the order of `classes`."""
        return self.manifest.class_names

    @property
    def feature_names(self) -> tuple[str, ...]:
        """A name for each feature: the column names of the table that was fitted, or else x0, x1 and so on."""
        return self.manifest.embedding.columns

    def __repr__(self) -> str:
        """One line; `_repr_html_`, `claim` and `manifest` say more."""
        manifest = self.manifest
        return (
            f"Release({manifest.generator}, kind={manifest.kind!r}, {len(manifest.classes)} classes, "
            f"{manifest.embedding.dim} features, claim={self.claim.kind!r}, "
            f"{'not saved' if self.fingerprint is None else f'fingerprint={self.fingerprint[:12]!r}'})"
        )

    def _repr_html_(self) -> str:
        """For notebooks; the words are those of `locum verify` and of the card."""
        manifest = self.manifest
        names = [*manifest.class_names[:20], *(["..."] if len(manifest.class_names) > 20 else [])]
        lines = [
            ("fingerprint", self.fingerprint or "none yet: `save` gives the release one"),
            *self.claim.lines(),
            ("holds", f"{KINDS[manifest.decoder.kind]}; made by {manifest.generator}"),
            ("classes", ", ".join(names)),
            ("vectors", f"{manifest.embedding.backbone}, {manifest.embedding.dim} features; space {manifest.space}"),
        ]
        if manifest.conditions:
            lines.append(("conditions", ", ".join(condition.name for condition in manifest.conditions)))
        return html_card(lines, tone=self.claim.tone)

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[Any]:
        """`feature_names` as scikit-learn asks for them; `input_features` is ignored."""
        return np.asarray(self.feature_names, dtype=object)

    def set_output(self, *, transform: Literal["default", "pandas"] | None = None) -> Self:
        """Let `sample` and `transform` return pandas objects ("pandas") or arrays ("default"); None changes nothing.

        It is scikit-learn's interface, so it changes this object and returns it. What leaves stays the same.
        """
        if transform is not None:
            _check_output(transform)
            # The release is frozen; how it is shown is no part of it.
            object.__setattr__(self, "output", transform)
        return self

    def transform(self, X: npt.ArrayLike) -> Any:
        """Bring real vectors into the space of the released ones; required wherever the two are mixed.

        A DataFrame must have the columns of the release, in their order, if these have names. It comes back as a
        DataFrame if `set_output` says so; arrays come back as arrays.
        """
        self._check_columns(X)
        out = self._to_space(X)
        framed = self.output == "pandas" and getattr(X, "columns", None) is not None
        return self._frame(out, getattr(X, "index", None)) if framed else out

    def _check_columns(self, X: Any) -> None:
        given, wanted = getattr(X, "columns", None), self.manifest.embedding.feature_names
        if given is None or not wanted or tuple(given) == wanted:
            return
        if sorted(map(str, given)) == sorted(wanted):
            raise DataError("The columns are those of the release, in another order: use X[release.feature_names].")
        missing = [name for name in wanted if name not in set(given)]
        raise DataError(
            f"The release was fitted on other columns: it has {len(wanted)}, and {len(missing)} of these are not "
            "among those given. Give exactly the columns in `release.feature_names`."
        )

    def _to_space(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        a = np.asarray(X, dtype=np.float32)
        if a.ndim != 2 or a.shape[1] != self.manifest.embedding.dim:
            raise DataError(
                f"The release's vectors have {self.manifest.embedding.dim} features; got shape {a.shape}. "
                "Embed the data with the backbone that the release names."
            )
        return to_space(a, self.manifest.space)

    @overload
    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        attributes: Mapping[str, str] | None = None,
        random_state: Seed = None,
        as_frame: Literal[False] | None = None,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]: ...

    @overload
    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        attributes: Mapping[str, str] | None = None,
        random_state: Seed = None,
        as_frame: Literal[True],
    ) -> tuple[pd.DataFrame, pd.Series[Any]]: ...

    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        attributes: Mapping[str, str] | None = None,
        random_state: Seed = None,
        as_frame: bool | None = None,
    ) -> Any:
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
        as_frame
            True: a DataFrame with `feature_names` as columns, and a Series of labels. False: arrays. None: what
            `set_output` says, arrays by default.

        Returns
        -------
        X : ndarray or DataFrame of shape (n, d)
            The vectors, in the release's space.
        y : ndarray or Series of shape (n,)
            Their labels.
        """
        framed = self.output == "pandas" if as_frame is None else as_frame
        pandas = _pandas() if framed else None
        X, codes = self._draw(n, per_class, variance, attributes, np.random.default_rng(random_state))
        y = self.classes[codes[:, 0]]
        return (X, y) if pandas is None else (self._frame(X), pandas.Series(y, name="label"))

    def to_pandas(self, n: int | None = None, *, random_state: Seed = None, **options: Any) -> pd.DataFrame:
        """The draw of `sample_set` as one DataFrame: features, then `label` with class names, then conditions.

        A feature that has the name of one of the last columns would hide it, so these get a `_` behind their name.
        """
        pandas = _pandas()
        drawn = self.sample_set(n, random_state=random_state, **options)
        frame = self._frame(drawn.X)
        names = np.asarray(self.manifest.class_names)[drawn.y]
        for name, values in {"label": names, **drawn.attributes}.items():
            while name in frame.columns:
                name += "_"
            frame[name] = pandas.Series(values, index=frame.index)
        return frame

    def to_torch(
        self, n: int | None = None, *, random_state: Seed = None, **options: Any
    ) -> torch.utils.data.TensorDataset:
        """The draw of `sample_set` as a torch dataset of vectors and class codes; `stream` gives one without end."""
        try:
            import torch.utils.data
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None
        drawn = self.sample_set(n, random_state=random_state, **options)
        return torch.utils.data.TensorDataset(torch.from_numpy(drawn.X.copy()), torch.from_numpy(drawn.y.copy()))

    def _frame(self, X: npt.NDArray[np.float32], index: Any = None) -> pd.DataFrame:
        return _pandas().DataFrame(X, columns=list(self.feature_names), index=index)

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
        if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1):
            raise ConfigError(f"`n` must be a whole number, 1 or more; got {n!r}.")
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


def _check_output(wanted: str) -> None:
    if wanted not in OUTPUTS:
        raise ConfigError(f"`transform` must be one of {', '.join(OUTPUTS)}; got {wanted!r}.")


def _pandas() -> Any:
    """The package, which only those need who ask for frames."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    return pandas
