"""A saved head as an ONNX model, built without torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from locum.heads.saved import SavedHead
from locum.release import OnnxGraph, onnx_facts


def head_to_onnx(head: SavedHead) -> bytes:
    """A head as an ONNX model that any runtime can predict with.

    The input is `X`, vectors of the backbone that the metadata names, as float32. Outputs are `probabilities`
    (float32, a column per class) and `code` (the most likely class, a place in `classes`). Arithmetic inside is
    float64, as in `SavedHead`.

    Parameters
    ----------
    head
        A head, as `train` saves it.

    Returns
    -------
    bytes
        The .onnx file; the same head gives the same bytes.

    Examples
    --------
    >>> from locum.heads import SavedHead, head_to_onnx
    >>> raw = head_to_onnx(SavedHead.open("head.safetensors"))  # doctest: +SKIP
    """
    manifest = head.manifest
    graph = OnnxGraph(np.float64)
    double = graph.add("Cast", [graph.to_space("X", manifest.space)], to=11)
    scores = graph.program(manifest.program, head.tensors, double)
    less = graph.add("Sub", [scores, graph.add("ReduceMax", [scores], axes=[1], keepdims=1)])
    weight = graph.add("Exp", [less])
    axes = graph.constant(np.array([1], dtype=np.int64))
    share = graph.add("Div", [weight, graph.add("ReduceSum", [weight, axes], keepdims=1)])
    graph.add("Cast", [share], "probabilities", to=1)
    graph.add("ArgMax", [share], "code", axis=1, keepdims=0)
    about = {
        **onnx_facts(manifest, manifest.release),
        "kind": "head",
        "head": manifest.head,
        "how_to_predict": [
            "`X` holds vectors of the backbone and preprocessing in `embedding`, in the order of `feature_names`",
            "`probabilities` has a column per entry of `classes`; `code` is the place of the most likely one",
        ],
    }
    words = f"{about['claim_in_words']} Not covered: {'; '.join(manifest.claim.not_covered)}."
    outputs: dict[str, tuple[Any, list[Any]]] = {
        "probabilities": (np.float32, ["n", len(manifest.classes)]),
        "code": (np.int64, ["n"]),
    }
    return graph.model({"X": (np.float32, ["n", manifest.embedding.dim])}, outputs, about, words)
