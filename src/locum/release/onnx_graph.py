"""A release's decoder, or any program of its operations, as an ONNX model: built by hand, without torch.

The model holds what drawing needs and nothing else: noisy sums and transcripts of a private fit stay in the release.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, missing_extra
from locum.release.decoders import Tensors, part_tensors
from locum.release.manifest import Document, GaussianSpec, Linear, Manifest, MixtureSpec, NetworkSpec, Residual
from locum.release.release import Release

# Understood by onnxruntime from 1.14 on, and by its builds for R, C#, Java and browsers.
_OPSET, _IR = 17, 8
ENTRY = "locum"
_FORMAT = {"format": "locum-onnx", "schema_version": 1}


class OnnxGraph:
    """Nodes and constants of an ONNX model, added one after the other; names are numbered, so bytes repeat.

    Parameters
    ----------
    dtype
        The type of numbers inside: float32 as a decoder computes, or float64 as a head does.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import OnnxGraph
    >>> graph = OnnxGraph(np.float32)
    >>> graph.add("Add", ["x", graph.constant(np.ones(1, np.float32))])
    't1'
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        try:
            import onnx
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None
        self._onnx = onnx
        self.dtype = np.dtype(dtype)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def add(self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """A node; the name of its output."""
        name = output or f"t{len(self._nodes) + len(self._constants)}"
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value: npt.NDArray[Any], name: str | None = None) -> str:
        """A constant; its name."""
        name = name or f"t{len(self._nodes) + len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def number(self, value: float) -> str:
        """One number of the graph's own type."""
        return self.constant(np.array(value, dtype=self.dtype))

    def columns(self, x: str, start: int, end: int) -> str:
        """Columns `start` to `end` of a matrix."""
        ends = (np.array([bound], dtype=np.int64) for bound in (start, end, 1))
        return self.add("Slice", [x, *(self.constant(bound) for bound in ends)])

    def column(self, codes: str, number: int) -> str:
        """One column of the codes, as a vector."""
        return self.add("Gather", [codes, self.constant(np.array(number, dtype=np.int64))], axis=1)

    def program(self, operations: Sequence[Any], tensors: Tensors, x: str) -> str:
        """The operations of a network, as `run_program` applies them."""
        for op in operations:
            if isinstance(op, Linear):
                weight = self.constant(tensors[op.weight].astype(self.dtype).T)
                x = self.add("MatMul", [x, weight])
                x = self.add("Add", [x, self.constant(tensors[op.bias].astype(self.dtype))])
            elif isinstance(op, Residual):
                x = self.add("Add", [self.program(op.body, tensors, x), self.program(op.shortcut, tensors, x)])
            elif op.op == "relu":
                x = self.add("Max", [x, self.number(0.0)])
            else:
                # As in `run_program`: tanh cannot overflow.
                half = self.add("Tanh", [self.add("Mul", [x, self.number(0.5)])])
                x = self.add("Mul", [self.add("Add", [half, self.number(1.0)]), self.number(0.5)])
        return x

    def to_space(self, x: str, space: str) -> str:
        """Vectors scaled to length 1 if the space asks for it, as `to_space` does."""
        if space == "raw":
            return x
        length = self.add("ReduceL2", [x], axes=[1], keepdims=1)
        return self.add("Div", [x, self.add("Max", [length, self.constant(np.array(1e-12, np.float32))])])

    def model(
        self,
        inputs: Mapping[str, tuple[Any, Sequence[Any]]],
        outputs: Mapping[str, tuple[Any, Sequence[Any]]],
        about: Mapping[str, Any],
        words: str,
    ) -> bytes:
        """The checked model as bytes; `about` becomes JSON in its metadata, `words` what viewers show."""
        helper = self._onnx.helper

        def described(values: Mapping[str, tuple[Any, Sequence[Any]]]) -> list[Any]:
            types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for name, (kind, _) in values.items()}
            return [helper.make_tensor_value_info(name, types[name], shape) for name, (_, shape) in values.items()]

        graph = helper.make_graph(
            self._nodes, "locum", described(inputs), described(outputs), initializer=self._constants
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="locum"
        )
        model.doc_string = words
        helper.set_model_props(model, {ENTRY: json.dumps({**_FORMAT, **about}, sort_keys=True, allow_nan=False)})
        if model.ByteSize() >= 2**31:
            raise ConfigError("An ONNX file holds less than 2 GiB, and this is larger: use the release itself.")
        self._onnx.checker.check_model(model, full_check=True)
        raw: bytes = model.SerializeToString(deterministic=True)
        return raw


def onnx_facts(document: Document, fingerprint: str | None) -> dict[str, Any]:
    """What the metadata of an exported model repeats from a manifest: the claim, classes, space and source.

    Parameters
    ----------
    document
        The manifest of a release or of a head.
    fingerprint
        The fingerprint of the release; None: not known.

    Returns
    -------
    dict
        Plain JSON, without settings.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import onnx_facts
    >>> release = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True)
    >>> onnx_facts(release.manifest, None)["claim"]["kind"]
    'none'
    """
    return {
        "release": fingerprint,
        "claim": document.claim.to_dict(),
        "claim_in_words": f"{document.claim.title}. {document.claim.sentence()}",
        "classes": list(document.classes),
        "class_names": list(document.class_names),
        "space": document.space,
        "embedding": document.embedding.model_dump(mode="json", exclude={"feature_names"}),
        "feature_names": list(document.embedding.feature_names),
        "written_by": document.written_by,
    }


def noise_width(manifest: Manifest, tensors: Tensors) -> int:
    """How many normal numbers a vector takes: those of the widest part, if there are several.

    Parameters
    ----------
    manifest
        The manifest of a release of kind "decoder".
    tensors
        Its tensors.

    Returns
    -------
    int
        The number of columns of the input `noise` of the exported model.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import noise_width
    >>> release = ClassGaussian(rank=0).fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True)
    >>> noise_width(release.manifest, release.tensors)
    4
    """
    spec = manifest.decoder
    if isinstance(spec, MixtureSpec):
        return max(_width(manifest, part.decoder, part_tensors(tensors, i)) for i, part in enumerate(spec.parts))
    return _width(manifest, spec, tensors)


def _width(manifest: Manifest, spec: Any, tensors: Tensors) -> int:
    d = manifest.embedding.dim
    if isinstance(spec, NetworkSpec):
        low = len(tensors["noise_factor"]) if spec.noise == "low-rank" else 0
        return spec.latent_dim + (d if spec.noise != "none" else 0) + low
    return d + len(tensors["factor"])


def decoder_to_onnx(release: Release) -> bytes:
    """A decoder as an ONNX model that any runtime can draw from.

    Inputs are `noise` (standard normal numbers, n rows), `codes` (the class of each vector, then its conditions, as
    whole numbers from 0), `variance` (one number, which the metadata give a default for) and for a mixture `uniform`
    (a number from 0 to 1 per vector, which picks the part). The output is `X`. The metadata entry `locum` holds JSON:
    how to draw, the frequency of each combination, and the claim. Only numbers that drawing needs are in it.

    Parameters
    ----------
    release
        A release of kind "decoder".

    Returns
    -------
    bytes
        The .onnx file; the same release gives the same bytes.

    Raises
    ------
    ConfigError
        If the release is a fixed table.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import decoder_to_onnx
    >>> release = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True)
    >>> decoder_to_onnx(release) == decoder_to_onnx(release)
    True
    """
    manifest, tensors = release.manifest, release.tensors
    spec = manifest.decoder
    if manifest.kind == "data":
        raise ConfigError(
            "This release is a fixed table of vectors, with no decoder to export: write its rows with `locum sample`."
        )
    graph = OnnxGraph(np.float32)
    width = noise_width(manifest, tensors)
    inputs: dict[str, tuple[Any, Sequence[Any]]] = {
        "noise": (np.float32, ["n", width]),
        "codes": (np.int64, ["n", len(manifest.widths)]),
        "variance": (np.float32, [1]),
    }
    if isinstance(spec, MixtureSpec):
        inputs["uniform"] = (np.float32, ["n"])
        x = _mixture(graph, manifest, spec, tensors, "variance")
    else:
        x = _one(graph, manifest, spec, tensors, "codes", "variance")
    x = graph.to_space(x, manifest.space)
    # As `Release.sample` does: 0 for numbers below the smallest that float32 holds with all digits.
    tiny = graph.constant(np.array(np.finfo(np.float32).tiny))
    kept = graph.add("Not", [graph.add("Less", [graph.add("Abs", [x]), tiny])])
    graph.add("Where", [kept, x, graph.number(0.0)], "X")
    joint = [{"codes": list(codes), "probability": p} for codes, p in manifest.joint]
    about = {
        **onnx_facts(manifest, release.fingerprint),
        "kind": "decoder",
        "generator": manifest.generator,
        "conditions": [condition.model_dump(mode="json") for condition in manifest.conditions],
        "joint": joint,
        "noise_width": width,
        "default_variance": spec.variance,  # type: ignore[union-attr]
        "how_to_draw": [
            "draw one entry of `joint` per vector by its probability: its codes are a row of `codes`",
            f"`noise` has {width} independent standard normal numbers per vector",
            *(["`uniform` has one uniform number from 0 to 1 per vector"] if "uniform" in inputs else []),
            "`variance` is one number, `default_variance` unless you choose another; less gives more typical vectors",
            "codes[:, 0] is a place in `classes` and `class_names`; others are places in `conditions`",
        ],
    }
    words = f"{about['claim_in_words']} Not covered: {'; '.join(manifest.claim.not_covered)}."
    return graph.model(inputs, {"X": (np.float32, ["n", manifest.embedding.dim])}, about, words)


def _one(
    graph: OnnxGraph,
    manifest: Manifest,
    spec: Any,
    tensors: Tensors,
    codes: str,
    variance: str,
) -> str:
    """One decoder, with the noise in the order in which `decode` draws it."""
    if isinstance(spec, GaussianSpec):
        return _gaussian(graph, manifest, tensors, codes, variance)
    return _network(graph, manifest, spec, tensors, codes, variance)


def _gaussian(graph: OnnxGraph, manifest: Manifest, tensors: Tensors, codes: str, variance: str) -> str:
    d, factor = manifest.embedding.dim, tensors["factor"]
    scale = graph.add("Sqrt", [variance])
    spread = graph.add("Mul", [scale, graph.constant(tensors["scale"].astype(np.float32))])
    x = graph.add("Mul", [graph.columns("noise", 0, d), spread])
    if len(factor):
        low = graph.add("Mul", [graph.columns("noise", d, d + len(factor)), scale])
        x = graph.add("Add", [x, graph.add("MatMul", [low, graph.constant(factor.astype(np.float32))])])
    row = graph.column(codes, 0)
    for number, width in enumerate(manifest.widths[1:], start=1):
        row = graph.add("Mul", [row, graph.constant(np.array(width, dtype=np.int64))])
        row = graph.add("Add", [row, graph.column(codes, number)])
    means = graph.constant(tensors["means"].astype(np.float32))
    return graph.add("Add", [x, graph.add("Gather", [means, row], axis=0)])


def _network(
    graph: OnnxGraph,
    manifest: Manifest,
    spec: NetworkSpec,
    tensors: Tensors,
    codes: str,
    variance: str,
) -> str:
    d, start = manifest.embedding.dim, spec.latent_dim
    scale = variance if spec.variance_as_std else graph.add("Sqrt", [variance])
    x = graph.add("Mul", [graph.columns("noise", 0, start), scale])
    if spec.conditional:
        values = graph.constant(np.array([0, 1], dtype=np.float32))
        hot = [
            graph.add("OneHot", [graph.column(codes, i), graph.constant(np.array(width, dtype=np.int64)), values])
            for i, width in enumerate(manifest.widths)
        ]
        x = graph.add("Concat", [x, *hot], axis=1)
    x = graph.add(
        "Mul", [graph.program(spec.program, tensors, x), graph.constant(tensors["span"].astype(np.float32))]
    )
    offset = graph.constant(tensors["offset"].astype(np.float32))
    if len(tensors["offset"]) > 1:
        offset = graph.add("Gather", [offset, graph.column(codes, 0)], axis=0)
    x = graph.add("Add", [x, offset])
    if spec.noise != "none":
        own = graph.constant(tensors["noise_scale"].astype(np.float32))
        x = graph.add("Add", [x, graph.add("Mul", [graph.columns("noise", start, start + d), own])])
    if spec.noise == "low-rank" and len(tensors["noise_factor"]):
        factor = tensors["noise_factor"].astype(np.float32)
        low = graph.columns("noise", start + d, start + d + len(factor))
        x = graph.add("Add", [x, graph.add("MatMul", [low, graph.constant(factor)])])
    return x


def _mixture(graph: OnnxGraph, manifest: Manifest, spec: MixtureSpec, tensors: Tensors, variance: str) -> str:
    """Every part decodes every row, and `uniform` picks one: graphs have no rows that some nodes skip."""
    ends = np.cumsum(tensors["weights"].astype(np.float64), axis=0)
    # A row per class, scaled to end at 1: rounded weights may sum to a little more or less.
    bounds = graph.constant((ends / ends[-1]).T.astype(np.float32))
    mine = graph.add("Gather", [bounds, graph.column("codes", 0)], axis=0)
    u = graph.add("Unsqueeze", ["uniform", graph.constant(np.array([1], dtype=np.int64))])
    x = ""
    for number, part in enumerate(spec.parts):
        codes = "codes"
        if part.order:
            codes = graph.add("Gather", [graph.constant(np.asarray(part.order, dtype=np.int64)), codes], axis=0)
        out = _one(graph, manifest, part.decoder, part_tensors(tensors, number), codes, variance)
        if number == 0:
            x = out
            continue
        beyond = graph.add("Not", [graph.add("Less", [u, graph.columns(mine, number - 1, number)])])
        x = graph.add("Where", [beyond, out, x])
    return x
