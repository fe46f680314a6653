"""TIPRDC: features of rows that an attacker cannot use, and rows decoded from them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locum.nets import ImageExtractor, RecordAutoencoder, guesser
from locum.obfuscate.baselines._loop import Batch, Move, Rows, confusion, play, reconstruction
from locum.obfuscate.baselines.base import Baseline
from locum.types import Progress

# Cost, in nats, of an error as large as the data's variance.
_INFORMATION = 20.0


class TIPRDC(Baseline):
    """Rows decoded from features that keep all they can of a row except its private attribute; no noise.

    Li et al., "TIPRDC: task-independent privacy-respecting data crowdsourcing framework for deep learning with
    anonymized intermediate representations" (2020): an extractor trained against an attacker on its features, while
    the information that features hold about images is kept high. As published it has no utility attribute. `strength`
    is lambda / (1 - lambda) of the paper. Ours differs: information is bounded from below by how well a decoder
    reconstructs the row from its features, where the paper has an estimator; so the decoder, which in the paper is
    an attacker, is trained with the extractor, and its output is the release. The extractor of images has two
    layers; in the paper, those of VGG16. For tables, which the paper does not have, it is AE-PUPET's encoder.
    """

    name = "tiprdc"
    released_: ImageExtractor | RecordAutoencoder

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        if rows.kind == "table":
            net = RecordAutoencoder(rows.shape[0], rows.blocks)
            return net, nn.ModuleDict({"attacker": guesser((net.latent,), rows.private_classes)})
        channels, height, width = rows.shape
        attacker = guesser((64, height // 4, width // 4), rows.private_classes)
        return ImageExtractor(channels), nn.ModuleDict({"attacker": attacker})

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        net = self.released_

        def move(batch: Batch, rng: torch.Generator) -> Move:
            features: Tensor = net.encoder(batch.x)
            if isinstance(net, RecordAutoencoder):
                return Move(features, reconstruction(net.scores(features), batch.x, net.types, rows.spread))
            error = (net(features) - batch.x).square().sum() / (len(batch.x) * rows.variance)
            return Move(features, _INFORMATION * error)

        def hide(logits: Tensor, batch: Batch) -> Tensor:
            return self.strength * confusion(logits, rows.prior)

        attacker = self.helpers_["attacker"]
        play(rows, move, [net], rng, attacker=attacker, hide=hide, epochs=epochs, progress=progress)

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        out: Tensor = self.released_(self.released_.encoder(x))
        return out
