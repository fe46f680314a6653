"""From a manifest and tensors that nobody vouches for to an obfuscator, or one sentence on what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from understudy.errors import ConfigError, FormatError
from understudy.nets import Obfuscator, image_obfuscator, table_obfuscator
from understudy.obfuscate.bins import NumberBins
from understudy.obfuscate.image import ImageObfuscator
from understudy.obfuscate.manifest import ImageData, ObfuscatorManifest
from understudy.obfuscate.noise import SeedNoise, ShapedNoise
from understudy.obfuscate.spectral import SpectralNoise
from understudy.obfuscate.table import TableObfuscator

__all__ = ["COUNTER", "NETWORK", "restored"]

Array = npt.NDArray[Any]
# What the names of a network's tensors begin with.
NETWORK = "network."
# Counts batches, and so records; nothing uses it after training.
COUNTER = "num_batches_tracked"


def restored(manifest: ObfuscatorManifest, tensors: Mapping[str, Array]) -> TableObfuscator | ImageObfuscator:
    """A fitted obfuscator whose every tensor has the shape, type and values that the manifest asks for."""
    settings, labels, left = manifest.settings.model_dump(), manifest.labels, _Tensors(dict(tensors))
    for name, value in tensors.items():
        if value.dtype.kind not in "fi" or not np.isfinite(value).all():
            raise FormatError(f"The tensor {name[:80]!r} must hold finite numbers.")
    model: TableObfuscator | ImageObfuscator
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
    if isinstance(model, ImageObfuscator) and model.preset == "calibrated":
        model.noise_ = _spectral(labels.sizes, model.shape_, left)
    else:
        model.module_ = _filled(module, left)
        model.noise_ = _noise(model.preset, labels.sizes, module.rest, left)
    if left.left:
        raise FormatError(f"There is a tensor {sorted(left.left)[0][:80]!r} that nothing uses: do not open it.")
    return model


@dataclass(slots=True)
class _Tensors:
    """Tensors that are taken out one by one, each of the shape and type that is expected."""

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
        raise FormatError(f"manifest.json asks for a network that cannot be: {error}") from None


def _filled(module: Obfuscator, tensors: _Tensors) -> Obfuscator:
    """Weights go in only after all shapes fit: what a manifest asks for costs no memory beyond the file's."""
    state = {}
    for name, expected in module.state_dict().items():
        if name.endswith(COUNTER):
            state[name] = torch.zeros((), dtype=expected.dtype)
            continue
        dtype = str(expected.dtype).removeprefix("torch.")
        # Of its own memory: arrays from a file may not be written to.
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
                f"The ranges of number {i + 1} must rise within 0..1, each from its low to its high end."
            )
        ends.append((low, high))
    return NumberBins(model.codec_.width, columns, tuple(low for low, _ in ends), tuple(high for _, high in ends))


def _noise(preset: str, sizes: tuple[int, ...], rest: int, tensors: _Tensors) -> SeedNoise | ShapedNoise:
    if preset == "seed":
        floor, per_batch = tensors.take("noise.seed", (2,), "float64").tolist()
        if floor < 0 or per_batch not in (0.0, 1.0):
            raise FormatError("The noise's floor must be 0 or more, and what it is taken over 0 or 1.")
        return SeedNoise(floor, bool(per_batch))
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
        raise FormatError("The noise's factors must be lower triangles with numbers above 0 on their diagonals.")
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
        raise FormatError("The noise's factors must be lower triangles with numbers above 0 on their diagonals.")
    if found["noise.bound"][0] <= 0:
        raise FormatError("The noise's bound must be above 0.")
    return SpectralNoise.restore(found)


def _combinations(sizes: tuple[int, ...], tensors: _Tensors) -> Array:
    combinations = tensors.take("noise.combinations", (None, len(sizes)), "int64")
    if not len(combinations) or (combinations < 0).any() or (combinations >= np.asarray(sizes)).any():
        raise FormatError("The noise has combinations of utility labels that there are not.")
    if len(np.unique(combinations, axis=0)) < len(combinations):
        raise FormatError("The noise lists a combination of utility labels twice.")
    return combinations
