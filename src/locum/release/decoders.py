"""Decoders in numpy: a receiver needs neither torch nor the training code to draw vectors."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import FormatError
from locum.release.manifest import GaussianSpec, Linear, Manifest, MixtureSpec, NetworkSpec, Residual, to_space

Array = npt.NDArray[np.float32]
Tensors = Mapping[str, npt.NDArray[Any]]
Codes = npt.NDArray[np.int64]
_TINY = np.finfo(np.float32).tiny
_ROWS = 128


def run_program(program: Sequence[Any], tensors: Tensors, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Apply each operation of a network in turn, in the precision of `x` and the tensors.

    Parameters
    ----------
    program
        Operations in their order: `Linear`, `Activation` or `Residual`.
    tensors
        Weights and biases by name.
    x
        Inputs, one per row.

    Returns
    -------
    ndarray of shape (n, width of the last layer)
        The outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import Activation, Linear, run_program
    >>> tensors = {"w": np.array([[1.0, -1.0]]), "b": np.array([0.5])}
    >>> program = [Linear(weight="w", bias="b"), Activation(op="relu")]
    >>> run_program(program, tensors, np.array([[3.0, 1.0], [0.0, 9.0]]))
    array([[2.5],
           [0. ]])
    """
    for op in program:
        if isinstance(op, Linear):
            x = x @ tensors[op.weight].T
            x += tensors[op.bias]
        elif isinstance(op, Residual):
            x = run_program(op.body, tensors, x) + run_program(op.shortcut, tensors, x)
        elif op.op == "relu":
            x = np.maximum(x, 0)
        else:
            # tanh cannot overflow, exp(-x) can.
            x = 0.5 * (np.tanh(0.5 * x) + 1)
    return x


def latent_scale(spec: NetworkSpec, variance: float) -> float:
    """The factor that gives standard normal noise the wanted variance."""
    return variance if spec.variance_as_std else float(np.sqrt(variance))


def decode(manifest: Manifest, tensors: Tensors, codes: Codes, variance: float, rng: np.random.Generator) -> Array:
    """One fresh vector for each row of `codes` (class, then conditions)."""
    spec = manifest.decoder
    if isinstance(spec, MixtureSpec):
        return _decode_mixture(manifest, spec, tensors, codes, variance, rng)
    return _decode_one(manifest, spec, tensors, codes, variance, rng)


class _Given:
    """Hands out the columns of given noise in place of a generator's own, in the order in which they are drawn."""

    def __init__(self, noise: Array) -> None:
        self._noise, self._at = noise, 0

    def standard_normal(self, shape: tuple[int, int], dtype: Any = np.float32) -> Array:
        """The next columns, as a copy: callers scale them in place."""
        start, self._at = self._at, self._at + shape[1]
        return self._noise[:, start : self._at].astype(dtype)


def decode_given(
    manifest: Manifest,
    tensors: Tensors,
    codes: npt.ArrayLike,
    noise: npt.ArrayLike,
    *,
    uniform: npt.ArrayLike | None = None,
    variance: float | None = None,
) -> Array:
    """The vectors that a decoder makes of given noise: what an exported model must return.

    Parameters
    ----------
    manifest
        The manifest of a release of kind "decoder".
    tensors
        Its tensors.
    codes
        The class of each vector, then its conditions: shape (n, 1 + conditions).
    noise
        Standard normal numbers, as many columns as `noise_width` says; a narrower part of a mixture takes the first.
    uniform
        For a mixture: a number from 0 to 1 per vector, which picks its part.
    variance
        Sampling variance; None: the release's own.

    Returns
    -------
    ndarray of shape (n, d)
        In the release's space.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import decode_given
    >>> made = ClassGaussian(rank=0).fit([[1.0], [3.0], [5.0], [7.0]], [0, 0, 1, 1]).release(no_dp=True)
    >>> decode_given(made.manifest, made.tensors, [[0], [1]], np.zeros((2, 1))).tolist()
    [[2.0], [6.0]]
    """
    spec: Any = manifest.decoder
    v = float(spec.variance if variance is None else variance)
    rows, given = np.asarray(codes, dtype=np.int64), np.asarray(noise, dtype=np.float32)
    if not isinstance(spec, MixtureSpec):
        out = _decode_one(manifest, spec, tensors, rows, v, _Given(given))  # type: ignore[arg-type]
        return flush_subnormals(to_space(out, manifest.space))
    ends = np.cumsum(tensors["weights"].astype(np.float64), axis=0)
    bounds = (ends / ends[-1]).astype(np.float32)
    chosen = (np.asarray(uniform, dtype=np.float32) >= bounds[:-1, rows[:, 0]]).sum(axis=0)
    out = np.empty((len(rows), manifest.embedding.dim), dtype=np.float32)
    for number, part in enumerate(spec.parts):
        mine = chosen == number
        own = np.asarray(part.order)[rows[mine]] if part.order else rows[mine]
        rng: Any = _Given(given[mine])
        out[mine] = _decode_one(manifest, part.decoder, part_tensors(tensors, number), own, v, rng)
    return flush_subnormals(to_space(out, manifest.space))


def flush_subnormals(x: Array) -> Array:
    """`x` itself, with 0 in place of numbers that float32 holds with fewer digits than others (below 1.2e-38).

    A receiver who standardizes features divides by their spread, and 1 / 1e-39 is infinite in float32.
    """
    # A few rows at a time stay in the processor's cache.
    for start in range(0, len(x), _ROWS):
        rows = x[start : start + _ROWS]
        whole = np.abs(rows) >= _TINY
        if not whole.all():
            rows *= whole
    return x


def part_tensors(tensors: Tensors, number: int) -> dict[str, npt.NDArray[Any]]:
    """The tensors of one part of a mixture, without the prefix in their names.

    Parameters
    ----------
    tensors
        All tensors of the release, by name.
    number
        Position of the part, from 0.

    Returns
    -------
    dict of str to ndarray
        The part's tensors, under the names that its decoder uses.

    Examples
    --------
    >>> from locum.release import part_tensors
    >>> list(part_tensors({"part0.means": 1, "part1.means": 2, "weights": 3}, 1).items())
    [('means', 2)]
    """
    prefix = part_prefix(number)
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def part_prefix(number: int) -> str:
    """The prefix of a part's tensors in the file.

    Parameters
    ----------
    number
        Position of the part in its mixture, from 0.

    Returns
    -------
    str
        The prefix, with a dot at its end.

    Examples
    --------
    >>> from locum.release import part_prefix
    >>> part_prefix(0) + "means"
    'part0.means'
    """
    return f"part{number}."


def cell_of(codes: Codes, widths: Sequence[int]) -> Codes:
    """The number of each combination of class and conditions, from 0; the last condition counts fastest.

    Parameters
    ----------
    codes
        The class, then each condition, as whole numbers from 0: shape (n, 1 + conditions).
    widths
        How many classes there are, then how many values each condition has.

    Returns
    -------
    ndarray of shape (n,)
        The row of a Gaussian's `means` for each combination; without conditions the class itself.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import cell_of
    >>> cell_of(np.array([[0, 0], [0, 2], [1, 0]]), (2, 3)).tolist()
    [0, 2, 3]
    """
    out = np.zeros(len(codes), dtype=np.int64)
    for column, width in enumerate(widths):
        out = out * width + codes[:, column]
    return out


def _decode_mixture(
    manifest: Manifest, spec: MixtureSpec, tensors: Tensors, codes: Codes, variance: float, rng: np.random.Generator
) -> Array:
    ends = np.cumsum(tensors["weights"].astype(np.float64), axis=0)
    # Rounded weights may sum to a little more or less than 1.
    chosen = ((rng.random(len(codes)) * ends[-1][codes[:, 0]]) >= ends[:-1, codes[:, 0]]).sum(axis=0)
    out = np.empty((len(codes), manifest.embedding.dim), dtype=np.float32)
    for number, part in enumerate(spec.parts):
        rows = np.flatnonzero(chosen == number)
        if len(rows):
            own = np.asarray(part.order)[codes[rows]] if part.order else codes[rows]
            out[rows] = _decode_one(manifest, part.decoder, part_tensors(tensors, number), own, variance, rng)
    return out


def _decode_one(
    manifest: Manifest, spec: Any, tensors: Tensors, codes: Codes, variance: float, rng: np.random.Generator
) -> Array:
    if isinstance(spec, NetworkSpec):
        return _decode_network(manifest, spec, tensors, codes, variance, rng)
    n, d = len(codes), manifest.embedding.dim
    scale = np.float32(np.sqrt(variance))
    x = rng.standard_normal((n, d), dtype=np.float32)
    x *= scale * tensors["scale"]
    factor = tensors["factor"]
    x += (scale * rng.standard_normal((n, len(factor)), dtype=np.float32)) @ factor
    x += tensors["means"][cell_of(codes, manifest.widths)]
    return x


def _decode_network(
    manifest: Manifest, spec: NetworkSpec, tensors: Tensors, codes: Codes, variance: float, rng: np.random.Generator
) -> Array:
    n = len(codes)
    width = sum(manifest.widths) if spec.conditional else 0
    x = np.zeros((n, spec.latent_dim + width), dtype=np.float32)
    x[:, : spec.latent_dim] = rng.standard_normal((n, spec.latent_dim), dtype=np.float32)
    x[:, : spec.latent_dim] *= np.float32(latent_scale(spec, variance))
    if spec.conditional:
        start = spec.latent_dim
        for column, size in enumerate(manifest.widths):
            x[np.arange(n), start + codes[:, column]] = 1
            start += size
    out = run_program(spec.program, tensors, x)
    offset = tensors["offset"]
    out = out * tensors["span"] + (offset if len(offset) == 1 else offset[codes[:, 0]])
    if spec.noise != "none":
        out += rng.standard_normal(out.shape, dtype=np.float32) * tensors["noise_scale"]
    if spec.noise == "low-rank":
        factor = tensors["noise_factor"]
        out += rng.standard_normal((n, len(factor)), dtype=np.float32) @ factor
    return out.astype(np.float32, copy=False)


def check_tensors(manifest: Manifest, tensors: Tensors) -> None:
    """Check that the tensors are exactly those that the decoder needs, of the right shapes, and finite."""
    spec = manifest.decoder
    if isinstance(spec, MixtureSpec):
        expected: dict[str, tuple[int, ...]] = {"weights": (len(spec.parts), len(manifest.classes))}
        for number, part in enumerate(spec.parts):
            own = _expected(manifest, part.decoder, part_tensors(tensors, number))
            expected |= {part_prefix(number) + name: shape for name, shape in own.items()}
    else:
        expected = _expected(manifest, spec, tensors)
    for name, shape in expected.items():
        if _shape(tensors, name) != shape:
            raise FormatError(f"Tensor {name!r} must have shape {shape}; the file has {_shape(tensors, name)}.")
    check_values(tensors, expected)
    codes = tensors.get("codes")
    if codes is not None and ((codes < 0).any() or (codes >= np.array(manifest.widths)).any()):
        raise FormatError("A released row has a class or condition that the manifest does not name.")
    if isinstance(spec, MixtureSpec):
        weights = tensors["weights"].astype(np.float64)
        if (weights < 0).any() or not np.allclose(weights.sum(axis=0), 1.0, rtol=0, atol=1e-4):
            raise FormatError("The weights of a mixture must be 0 or more, and sum to 1 for each class.")


def _expected(manifest: Manifest, spec: Any, tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that one decoder needs; ranks are taken from the tensors."""
    d, classes = manifest.embedding.dim, len(manifest.classes)
    if isinstance(spec, NetworkSpec):
        expected: dict[str, tuple[int, ...]] = {}
        width = spec.latent_dim + (sum(manifest.widths) if spec.conditional else 0)
        out = trace_program(
            spec.program, _shapes(tensors), width, lambda name: expected.update({name: _shape(tensors, name)})
        )
        if out != d:
            raise FormatError(f"The decoder returns vectors of {out} features, but the manifest says {d}.")
        shared = _rows(tensors, "offset") == 1
        expected |= {"span": (d,), "offset": (1 if shared else classes, d)}
        if spec.noise != "none":
            expected["noise_scale"] = (d,)
        if spec.noise == "low-rank":
            expected["noise_factor"] = (_rows(tensors, "noise_factor"), d)
        return expected
    if isinstance(spec, GaussianSpec):
        cells = manifest.cells
        expected = {"means": (cells, d), "factor": (_rows(tensors, "factor"), d), "scale": (d,)}
        if spec.statistics is not None:
            expected["statistics"] = (spec.statistics.size(cells, d),)
        if spec.head is not None:
            expected["transcript"] = (spec.head.size(cells, d),)
        return expected
    n = _rows(tensors, "X")
    return {"X": (n, d), "codes": (n, 1 + len(manifest.conditions))}


def check_values(tensors: Tensors, used: Container[str]) -> None:
    """Check that every tensor is in use, of the right type, and finite.

    Parameters
    ----------
    tensors
        The tensors by name: "codes" holds integers, all others hold floats.
    used
        The names that something uses.

    Raises
    ------
    FormatError
        If a tensor is not used, has the wrong type, or holds NaN or infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import check_values
    >>> check_values({"means": np.eye(2)}, {"scale"})
    Traceback (most recent call last):
        ...
    locum.errors.FormatError: The file holds a tensor that nothing uses: 'means'.
    """
    for name, value in sorted(tensors.items()):
        if name not in used:
            raise FormatError(f"The file holds a tensor that nothing uses: {name[:80]!r}.")
        if value.dtype.kind != ("i" if name == "codes" else "f"):
            raise FormatError(f"Tensor {name!r} has the wrong type: {value.dtype}.")
        if not np.isfinite(value).all():
            raise FormatError(f"Tensor {name!r} holds NaN or infinity.")


def trace_program(
    program: Sequence[Any], shapes: Mapping[str, tuple[int, ...]], width: int, seen: Callable[[str], None]
) -> int:
    """Output width of a network for inputs of a given width; checks every shape on the way.

    Parameters
    ----------
    program
        Operations in their order, as for `run_program`.
    shapes
        Shapes of the tensors by name.
    width
        Number of inputs.
    seen
        Called with the name of every tensor that the network uses.

    Returns
    -------
    int
        Number of outputs.

    Raises
    ------
    FormatError
        If a layer does not fit the one before, or a residual block adds vectors of different widths.

    Examples
    --------
    >>> from locum.release import Linear, trace_program
    >>> used = set()
    >>> trace_program([Linear(weight="w", bias="b")], {"w": (3, 2), "b": (3,)}, 2, used.add), sorted(used)
    (3, ['b', 'w'])
    """
    for op in program:
        if isinstance(op, Linear):
            weight, bias = shapes.get(op.weight, ()), shapes.get(op.bias, ())
            if len(weight) != 2 or weight[1] != width or bias != weight[:1]:
                raise FormatError(f"Layer {op.weight!r} does not fit: weight {weight}, bias {bias}, input {width}.")
            seen(op.weight)
            seen(op.bias)
            width = weight[0]
        elif isinstance(op, Residual):
            body, shortcut = (trace_program(part, shapes, width, seen) for part in (op.body, op.shortcut))
            if body != shortcut:
                raise FormatError(f"A residual block adds {body} to {shortcut} features.")
            width = body
    return width


def _shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in tensors.items()}


def _shape(tensors: Tensors, name: str) -> tuple[int, ...]:
    if name not in tensors:
        raise FormatError(f"The decoder file lacks tensor {name!r}.")
    return tuple(tensors[name].shape)


def _rows(tensors: Tensors, name: str) -> int:
    shape = _shape(tensors, name)
    return shape[0] if shape else 0
