"""Saving an obfuscator as a folder of safetensors, manifest and card, and reading it back with every check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError

from locum.errors import ConfigError, FormatError, NotFittedError
from locum.io import MANIFEST, write_folder_atomically
from locum.nets import Obfuscator, image_obfuscator, table_obfuscator
from locum.obfuscate.image import NO_NETWORK, ImageObfuscator
from locum.obfuscate.manifest import (
    ImageData,
    ObfuscatorManifest,
    ObfuscatorSettings,
    TableData,
    UtilityEntry,
    obfuscator_claim,
    parse_obfuscator_manifest,
    render_obfuscator_card,
    shown_parts,
    written_by,
)
from locum.obfuscate.noise import PaperNoise, ShapedNoise, SpectralNoise
from locum.obfuscate.substitution import Substitution
from locum.obfuscate.table import NumberBins, TableObfuscator
from locum.release import (
    CARD,
    MAX_MANIFEST_BYTES,
    FileEntry,
    entry_of,
    first_fault,
    parse_tensors,
    read_checked_folder,
)
from locum.types import PrivacyClaim

Array = npt.NDArray[Any]
AnyObfuscator = TableObfuscator | ImageObfuscator

TENSORS = "obfuscator.safetensors"
# The prefix of a network's tensors.
NETWORK = "network."
# A count of batches, and so of records; nothing uses it after training.
COUNTER = "num_batches_tracked"


@dataclass(frozen=True, slots=True, eq=False)
class SavedObfuscator:
    """An obfuscator read from a folder.

    Attributes
    ----------
    model
        The obfuscator, ready for `transform`.
    manifest
        What the folder says about it.
    fingerprint
        SHA-256 of the manifest.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from locum.obfuscate import ImageObfuscator, open_obfuscator, save_obfuscator
    >>> images = np.random.default_rng(0).integers(0, 255, (40, 16, 16)).astype(np.uint8)
    >>> model = ImageObfuscator().fit(images, np.arange(40) % 2, show_quarters=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = open_obfuscator(save_obfuscator(model, f"{folder}/obfuscator"))
    >>> saved.claim.kind, saved.manifest.data.side
    ('none', 16)
    """

    model: AnyObfuscator
    manifest: ObfuscatorManifest
    fingerprint: str

    @property
    def claim(self) -> PrivacyClaim:
        """The claim about the records it was fitted on: of kind none."""
        return self.manifest.claim

    @property
    def shown(self) -> str | None:
        """What its releases show of other images as they are, in words; None if nothing."""
        data = self.manifest.data
        return shown_parts(data.pool) if isinstance(data, ImageData) and data.pool is not None else None


def save_obfuscator(model: AnyObfuscator, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a fitted obfuscator as a folder, atomically.

    The folder holds what was learned from records: networks, categories and range limits, means and covariances by
    utility label, names and values of the utility attributes. The claim says so. The seed and the history stay out.

    Parameters
    ----------
    model
        A fitted obfuscator.
    path
        The folder.
    overwrite
        Replace an existing obfuscator.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, pandas as pd
    >>> from locum.obfuscate import TableObfuscator, load_obfuscator, save_obfuscator
    >>> rng = np.random.default_rng(0)
    >>> patients = pd.DataFrame({"age": rng.integers(20, 70, 200), "job": rng.choice(["cook", "nurse"], 200)})
    >>> smoker = rng.choice(["no", "yes"], 200)
    >>> model = TableObfuscator(max_epochs=1, random_state=0).fit(patients, smoker)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load_obfuscator(save_obfuscator(model, f"{folder}/obfuscator"))
    >>> knobs = {"noise": 5, "lambda_": -50, "random_state": 0}
    >>> again.transform(patients, smoker, **knobs).equals(model.transform(patients, smoker, **knobs))
    True
    """
    from safetensors.numpy import save

    if not hasattr(model, "noise_"):
        raise NotFittedError(f"This {type(model).__name__} has not been fitted: call fit(X, utility) first.")
    tensors = _tensors(model)
    if bad := next((name for name, value in tensors.items() if not np.isfinite(value).all()), None):
        raise ConfigError(f"The obfuscator cannot be saved: {bad!r} is not finite. Fit it again with fewer epochs.")
    try:
        manifest = _manifest(model)
    except ValidationError as error:
        place, fault = first_fault(error)
        raise ConfigError(f"The obfuscator cannot be saved because of {place!r}: {fault}.") from None
    card = render_obfuscator_card(manifest).encode()
    numbers = save({name: np.ascontiguousarray(value) for name, value in tensors.items()})
    entries = {TENSORS: entry_of(numbers), CARD: entry_of(card)}
    # Read it back first, so that nothing is written that cannot be read.
    about = manifest.model_copy(update={"files": entries}).dumps().encode()
    _restored(parse_obfuscator_manifest(about), parse_tensors(numbers, TENSORS)[0])
    if len(about) > MAX_MANIFEST_BYTES:
        raise ConfigError("The obfuscator cannot be saved: its columns have too many categories. Merge rare ones.")
    contents = [(TENSORS, numbers), (CARD, card), (MANIFEST, about)]
    write_folder_atomically(Path(path), contents, overwrite=overwrite)
    return Path(path)


def open_obfuscator(path: str | Path) -> SavedObfuscator:
    """Read a folder after checking all of it; no code in it runs.

    The checks show that the folder is consistent, not who made it or from which data.

    Parameters
    ----------
    path
        A folder that `save_obfuscator` wrote.

    Returns
    -------
    SavedObfuscator
        The obfuscator, its manifest and its fingerprint.

    Raises
    ------
    ReleaseError
        If the folder is damaged or hostile.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from locum.obfuscate import ImageObfuscator, open_obfuscator, save_obfuscator
    >>> images = np.random.default_rng(0).integers(0, 255, (40, 16, 16)).astype(np.uint8)
    >>> model = ImageObfuscator().fit(images, np.arange(40) % 2, show_quarters=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = open_obfuscator(save_obfuscator(model, f"{folder}/obfuscator"))
    >>> saved.manifest.data.kind, len(saved.fingerprint)
    ('image', 64)
    """
    manifest, files, fingerprint = read_checked_folder(Path(path), "an obfuscator", _parse)
    tensors = parse_tensors(files[TENSORS], TENSORS)[0]
    return SavedObfuscator(_restored(manifest, tensors), manifest, fingerprint)


def load_obfuscator(path: str | Path) -> AnyObfuscator:
    """Load the obfuscator in a folder, ready for `transform`: bit for bit the one that was saved.

    Parameters
    ----------
    path
        A folder that `save_obfuscator` wrote; it is checked as by `open_obfuscator`.

    Returns
    -------
    TableObfuscator or ImageObfuscator
        The fitted obfuscator.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from locum.obfuscate import ImageObfuscator, load_obfuscator, save_obfuscator
    >>> images = np.random.default_rng(0).integers(0, 255, (40, 16, 16)).astype(np.uint8)
    >>> model = ImageObfuscator().fit(images, np.arange(40) % 2, show_quarters=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load_obfuscator(save_obfuscator(model, f"{folder}/obfuscator"))
    >>> again.transform(images, np.arange(40) % 2, noise=3).shape
    (40, 16, 16)
    """
    return open_obfuscator(path).model


# -- writing -------------------------------------------------------------------------------------------------------
def _manifest(model: AnyObfuscator) -> ObfuscatorManifest:
    data: TableData | ImageData
    if isinstance(model, TableObfuscator):
        data = TableData(columns=tuple(model.codec_.to_dict()["columns"]))
    else:
        pool = model.noise_.pool if isinstance(model.noise_, Substitution) else None
        data = ImageData(channels=model.shape_[0], side=model.shape_[1], pool=pool)
    settings = {name: getattr(model, name) for name in ObfuscatorSettings.model_fields}
    return ObfuscatorManifest(
        written_by=written_by(),
        settings=ObfuscatorSettings(**settings),
        data=data,
        utility=tuple(
            UtilityEntry(name=name, values=values)
            for name, values in zip(model.labels_.names, model.labels_.values, strict=True)
        ),
        claim=obfuscator_claim(model.preset, data.pool if isinstance(data, ImageData) else None),
    )


def _tensors(model: AnyObfuscator) -> dict[str, Array]:
    out = model.noise_.tensors()
    if not isinstance(model.noise_, NO_NETWORK):
        state = model.module_.state_dict().items()
        out |= {NETWORK + name: value.numpy() for name, value in state if not name.endswith(COUNTER)}
    # Range limits are values of records: they leave only where they are used.
    if isinstance(model, TableObfuscator) and model.preset == "calibrated":
        for i, (low, high) in enumerate(zip(model.bins_.low, model.bins_.high, strict=True)):
            out |= {f"ranges.{i}.low": low, f"ranges.{i}.high": high}
    return out


# -- reading: every tensor is checked before it is used --------------------------------------------------------------
def _parse(raw: bytes) -> tuple[ObfuscatorManifest, Mapping[str, FileEntry]]:
    manifest = parse_obfuscator_manifest(raw)
    if set(manifest.files) != {TENSORS, CARD}:
        raise FormatError(f"The manifest of an obfuscator must list {TENSORS} and {CARD}, and nothing else.")
    return manifest, manifest.files


def _restored(manifest: ObfuscatorManifest, tensors: Mapping[str, Array]) -> AnyObfuscator:
    """A fitted obfuscator; every tensor has the shape, type and values that the manifest calls for."""
    settings, labels, left = manifest.settings.model_dump(), manifest.labels, _Tensors(dict(tensors))
    for name, value in tensors.items():
        if value.dtype.kind not in "fiu" or not np.isfinite(value).all():
            raise FormatError(f"The tensor {name[:80]!r} must hold finite numbers.")
    model: AnyObfuscator
    if isinstance(manifest.data, ImageData):
        channels, side = manifest.data.channels, manifest.data.side
        model = ImageObfuscator(**settings)
        model.shape_ = (channels, side, side)
        module = _built(lambda: image_obfuscator(channels, side, labels.sizes))
    else:
        model = TableObfuscator(**settings)
        model.codec_ = manifest.data.codec()
        width = model.codec_.width
        if model.preset == "calibrated":
            model.bins_ = _bins(model, left)
            width += sum(len(low) for low in model.bins_.low) - len(model.bins_.columns)
        module = _built(lambda: table_obfuscator(width, labels.sizes, ends=model._ends))
    model.labels_ = labels
    if isinstance(manifest.data, ImageData) and manifest.data.pool is not None:
        model.noise_ = _pool(labels.sizes, manifest.data, left)
    elif isinstance(model, ImageObfuscator) and model.preset == "calibrated":
        model.noise_ = _spectral(labels.sizes, model.shape_, left)
    else:
        model.module_ = _filled(module, left)
        model.noise_ = _noise(model.preset, labels.sizes, module.rest, left)
    if left.left:
        raise FormatError(f"Nothing uses the tensor {sorted(left.left)[0][:80]!r}: do not trust this folder.")
    return model


@dataclass(slots=True)
class _Tensors:
    """Tensors that are taken out one by one, each with the expected shape and type."""

    left: dict[str, Array]

    def take(self, name: str, shape: tuple[int | None, ...], dtype: str) -> Array:
        if name not in self.left:
            raise FormatError(f"The tensor {name!r} is missing.")
        value = self.left.pop(name)
        fits = len(shape) == value.ndim and all(a in (None, b) for a, b in zip(shape, value.shape, strict=True))
        if not fits or str(value.dtype) != dtype:
            wanted = tuple("any" if n is None else n for n in shape)
            raise FormatError(
                f"The tensor {name!r} must be {dtype} of shape {wanted}; got {value.dtype} {value.shape}."
            )
        return value


def _built(make: Callable[[], Obfuscator]) -> Obfuscator:
    try:
        with torch.device("meta"):
            return make()
    except ConfigError as error:
        raise FormatError(f"manifest.json describes a network that is not possible: {error}") from None


def _filled(module: Obfuscator, tensors: _Tensors) -> Obfuscator:
    """Load the weights once all shapes fit, so that a manifest cannot make us allocate more than the file holds."""
    state = {}
    for name, expected in module.state_dict().items():
        if name.endswith(COUNTER):
            state[name] = torch.zeros((), dtype=expected.dtype)
            continue
        dtype = str(expected.dtype).removeprefix("torch.")
        # A copy: arrays from a file are read-only.
        state[name] = torch.from_numpy(tensors.take(NETWORK + name, tuple(expected.shape), dtype).copy())
        if name.endswith("running_var") and (state[name] < 0).any():
            raise FormatError(f"The tensor {NETWORK + name!r} holds variances below 0.")
    module.load_state_dict(state, assign=True)
    return module.eval()


def _bins(model: TableObfuscator, tensors: _Tensors) -> NumberBins:
    taken = {j for block in model.codec_.blocks for j in range(block.start, block.stop)}
    columns = tuple(j for j in range(model.codec_.width) if j not in taken)
    ends = []
    for i in range(len(columns)):
        low = tensors.take(f"ranges.{i}.low", (None,), "float32")
        high = tensors.take(f"ranges.{i}.high", (len(low),), "float32")
        if not len(low) or (np.diff(low) <= 0).any() or (low > high).any() or low[0] < 0 or high.max() > 1:
            raise FormatError(
                f"The ranges of number {i + 1} must ascend within 0..1, each from its low to its high limit."
            )
        ends.append((low, high))
    return NumberBins(model.codec_.width, columns, tuple(low for low, _ in ends), tuple(high for _, high in ends))


def _noise(preset: str, sizes: tuple[int, ...], rest: int, tensors: _Tensors) -> PaperNoise | ShapedNoise:
    if preset == "paper":
        floor, per_batch = tensors.take("noise.paper", (2,), "float64").tolist()
        if floor < 0 or per_batch not in (0.0, 1.0):
            raise FormatError("The noise's floor must be 0 or more, and its flag `per_batch` 0 or 1.")
        return PaperNoise(floor, bool(per_batch))
    combinations = _combinations(sizes, tensors)
    rows = len(combinations) + 1
    found = {
        "noise.combinations": combinations,
        "noise.means": tensors.take("noise.means", (rows, rest), "float32"),
        "noise.factors": tensors.take("noise.factors", (rows, rest, rest), "float32"),
        "noise.bound": tensors.take("noise.bound", (1,), "float64"),
    }
    factors = found["noise.factors"]
    if (np.diagonal(factors, axis1=1, axis2=2) <= 0).any() or np.triu(factors, 1).any():
        raise FormatError("The noise's factors must be lower triangular with positive diagonals.")
    if found["noise.bound"][0] <= 0:
        raise FormatError("The noise's bound must be above 0.")
    return ShapedNoise.restore(found)


def _spectral(sizes: tuple[int, ...], shape: tuple[int, ...], tensors: _Tensors) -> SpectralNoise:
    combinations = _combinations(sizes, tensors)
    channels, side, _ = shape
    found = {
        "noise.combinations": combinations,
        "noise.means": tensors.take("noise.means", (len(combinations) + 1, *shape), "float32"),
        "noise.factors": tensors.take("noise.factors", (2, side, side // 2 + 1, channels, channels), "float32"),
        "noise.bound": tensors.take("noise.bound", (1,), "float64"),
    }
    real, imaginary = (np.diagonal(part, axis1=2, axis2=3) for part in found["noise.factors"])
    if (real <= 0).any() or imaginary.any() or np.triu(found["noise.factors"], 1).any():
        raise FormatError("The noise's factors must be lower triangular with positive diagonals.")
    if found["noise.bound"][0] <= 0:
        raise FormatError("The noise's bound must be above 0.")
    return SpectralNoise.restore(found)


def _pool(sizes: tuple[int, ...], data: ImageData, tensors: _Tensors) -> Substitution:
    assert data.pool is not None
    combinations = _combinations(sizes, tensors)
    images = tensors.take("noise.pool", (None, data.channels, data.side, data.side), "uint8")
    owners = tensors.take("noise.owners", (len(images),), "int64")
    if not np.array_equal(np.unique(owners), np.arange(len(combinations))) or (np.diff(owners) < 0).any():
        raise FormatError("Every combination of utility labels must have images in the pool, which must be in order.")
    found = {"noise.combinations": combinations, "noise.pool": images, "noise.owners": owners}
    return Substitution.restore(found, data.pool)


def _combinations(sizes: tuple[int, ...], tensors: _Tensors) -> Array:
    combinations = tensors.take("noise.combinations", (None, len(sizes)), "int64")
    if not len(combinations) or (combinations < 0).any() or (combinations >= np.asarray(sizes)).any():
        raise FormatError("The noise has combinations of utility labels that do not exist.")
    if len(np.unique(combinations, axis=0)) < len(combinations):
        raise FormatError("The noise lists a combination of utility labels twice.")
    return combinations
