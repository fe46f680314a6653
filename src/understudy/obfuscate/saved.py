"""An obfuscator as a folder to share: safetensors, a manifest and a card; whoever gets it turns the knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from understudy.errors import ConfigError, FormatError, NotFittedError
from understudy.obfuscate.card import render_obfuscator_card
from understudy.obfuscate.image import ImageObfuscator
from understudy.obfuscate.manifest import (
    ImageData,
    ObfuscatorManifest,
    ObfuscatorSettings,
    TableData,
    UtilityEntry,
    obfuscator_claim,
    parse_obfuscator_manifest,
    written_by,
)
from understudy.obfuscate.restore import COUNTER, NETWORK, restored
from understudy.obfuscate.spectral import SpectralNoise
from understudy.obfuscate.table import TableObfuscator
from understudy.release.folder import CARD, parse_tensors
from understudy.release.manifest import MAX_MANIFEST_BYTES, ClaimEntry, FileEntry, first_fault
from understudy.release.whole import MANIFEST, entry_of, read_whole, write_whole
from understudy.types import PrivacyClaim

__all__ = ["TENSORS", "SavedObfuscator", "load_obfuscator", "open_obfuscator", "save_obfuscator"]

Array = npt.NDArray[Any]
AnyObfuscator = TableObfuscator | ImageObfuscator

TENSORS = "obfuscator.safetensors"


@dataclass(frozen=True, slots=True, eq=False)
class SavedObfuscator:
    """An obfuscator that was read from a folder, with what the folder says about itself."""

    model: AnyObfuscator
    manifest: ObfuscatorManifest
    fingerprint: str

    @property
    def claim(self) -> PrivacyClaim:
        """What is promised about the records behind it: nothing."""
        return self.manifest.claim.claim()


def save_obfuscator(model: AnyObfuscator, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a fitted obfuscator as a folder, whole or not at all; an existing one is replaced only if asked.

    What leaves was learnt from records: networks, categories and the ends of ranges, means and spreads by utility
    label, names and values of the utility attributes. The claim says so. The seed and the history stay.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, pandas as pd
    >>> from understudy.obfuscate import TableObfuscator, load_obfuscator, save_obfuscator
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.integers(20, 70, 200), "job": rng.choice(["cook", "nurse"], 200)})
    >>> smoker = rng.choice(["no", "yes"], 200)
    >>> model = TableObfuscator(max_epochs=1, random_state=0).fit(people, smoker)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load_obfuscator(save_obfuscator(model, f"{folder}/obfuscator"))
    >>> knobs = {"noise": 5, "lambda_": -50, "random_state": 0}
    >>> again.transform(people, smoker, **knobs).equals(model.transform(people, smoker, **knobs))
    True
    """
    from safetensors.numpy import save

    if not hasattr(model, "noise_"):
        raise NotFittedError(f"This {type(model).__name__} has not been fitted: call fit(X, utility) first.")
    tensors = _tensors(model)
    if bad := next((name for name, value in tensors.items() if not np.isfinite(value).all()), None):
        raise ConfigError(f"The obfuscator cannot be saved: {bad!r} is not finite. Fit it anew, with fewer epochs.")
    try:
        manifest = _manifest(model)
    except ValidationError as error:
        place, fault = first_fault(error)
        raise ConfigError(f"The obfuscator cannot be saved because of {place!r}: {fault}.") from None
    card = render_obfuscator_card(manifest).encode()
    numbers = save({name: np.ascontiguousarray(value) for name, value in tensors.items()})
    entries = {TENSORS: entry_of(numbers), CARD: entry_of(card)}
    # Through the reader's own eyes, so that nothing is written that cannot be read.
    about = manifest.model_copy(update={"files": entries}).dumps().encode()
    restored(parse_obfuscator_manifest(about), parse_tensors(numbers, TENSORS)[0])
    if len(about) > MAX_MANIFEST_BYTES:
        raise ConfigError("The obfuscator cannot be saved: its columns have too many categories. Join rare ones.")
    contents = [(TENSORS, numbers), (CARD, card), (MANIFEST, about)]
    write_whole(Path(path), contents, overwrite=overwrite)
    return Path(path)


def open_obfuscator(path: str | Path) -> SavedObfuscator:
    """Read a folder after checking all of it; a hostile one ends in a `ReleaseError`, and runs nothing.

    The checks show that the folder hangs together, not who made it nor from what.
    """
    manifest, files, fingerprint = read_whole(Path(path), "an obfuscator", _parse)
    tensors = parse_tensors(files[TENSORS], TENSORS)[0]
    return SavedObfuscator(restored(manifest, tensors), manifest, fingerprint)


def _parse(raw: bytes) -> tuple[ObfuscatorManifest, Mapping[str, FileEntry]]:
    manifest = parse_obfuscator_manifest(raw)
    if set(manifest.files) != {TENSORS, CARD}:
        raise FormatError(f"The manifest of an obfuscator lists {TENSORS} and {CARD}, and nothing else.")
    return manifest, manifest.files


def load_obfuscator(path: str | Path) -> AnyObfuscator:
    """The obfuscator in a folder, ready for `transform`: as it was saved, to the last bit."""
    return open_obfuscator(path).model


# -- writing -------------------------------------------------------------------------------------------------------
def _manifest(model: AnyObfuscator) -> ObfuscatorManifest:
    data: TableData | ImageData
    if isinstance(model, TableObfuscator):
        data = TableData(columns=tuple(model.codec_.to_dict()["columns"]))
    else:
        data = ImageData(channels=model.shape_[0], side=model.shape_[1])
    told = {name: getattr(model, name) for name in ObfuscatorSettings.model_fields}
    return ObfuscatorManifest(
        written_by=written_by(),
        settings=ObfuscatorSettings(**told),
        data=data,
        utility=tuple(
            UtilityEntry(name=name, values=values)
            for name, values in zip(model.labels_.names, model.labels_.values, strict=True)
        ),
        claim=ClaimEntry(**obfuscator_claim(model.preset).to_dict()),
    )


def _tensors(model: AnyObfuscator) -> dict[str, Array]:
    out = model.noise_.tensors()
    if not isinstance(model.noise_, SpectralNoise):
        state = model.module_.state_dict().items()
        out |= {NETWORK + name: value.numpy() for name, value in state if not name.endswith(COUNTER)}
    # Ends of ranges are values of records: they leave only where they are used.
    if isinstance(model, TableObfuscator) and model.preset == "calibrated":
        for i, (low, high) in enumerate(zip(model.bins_.low, model.bins_.high, strict=True)):
            out |= {f"ranges.{i}.low": low, f"ranges.{i}.high": high}
    return out
