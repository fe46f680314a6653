"""A CVAE under differential privacy: DP-SGD on whitened vectors of length 1 around noisy class means.

The class means are known from the start; the network only learns how records vary around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locum.accounting import Charge, Ledger, SGDPlan
from locum.data import Reference
from locum.errors import PrivacyError
from locum.generate.base import Records
from locum.generate.presets import Preset
from locum.generate.private.query import Measured, exact_query
from locum.generate.private.whitening import INITIAL_QUERIES, Whitener, read_sums
from locum.generate.scaling import with_labels
from locum.nets import CVAE
from locum.train import CVAELoss, seeded
from locum.train.dp import InitialQuery, PrivateHistory, PrivateRun
from locum.types import Progress

Array = npt.NDArray[np.float64]
Tensors = dict[str, npt.NDArray[np.float32]]

# Class means and decoder explain at most this share of the squared length of a vector.
_MOST = 0.9
_DRAWS = 4096


def check_private(settings: Preset, *, authors_compat: bool, validation: bool) -> None:
    """Refuse settings that would use records without paying, before any record is used."""
    if settings.patience or validation:
        raise PrivacyError(
            "Early stopping uses records without paying: under differential privacy leave `patience` and "
            "`validation` out."
        )
    if authors_compat:
        raise PrivacyError(
            "The authors' procedure does not give the privacy that they state: leave `authors_compat` out under "
            "differential privacy."
        )
    if settings.scaling not in INITIAL_QUERIES:
        raise PrivacyError(
            f"The scaling {settings.scaling!r} reveals values of records: under differential privacy use 'class' "
            "(noisy class means) or 'public' (public statistics alone)."
        )
    if settings.decoder_noise == "diagonal":
        raise PrivacyError(
            "Nothing pays for the variance of each feature's error: under differential privacy `decoder_noise` is "
            "'low-rank' (from public statistics) or 'none'."
        )
    if settings.residual:
        raise PrivacyError(
            "Batch norm mixes the records of a batch, so the gradient of one record cannot be bounded: under "
            "differential privacy use a preset other than 'large'."
        )


@dataclass(frozen=True, slots=True, eq=False)
class PrivateFit:
    """Result of a private fit besides the weights: whitener, noisy class shares, charge and history."""

    whitener: Whitener
    shares: Array
    charge: Charge | None
    history: PrivateHistory


def train_privately(
    module: CVAE,
    records: Records,
    settings: Preset,
    plan: SGDPlan,
    reference: Reference,
    subjects: npt.NDArray[np.int64] | None,
    *,
    ledger: Ledger | None,
    holding: str,
    purpose: str,
    insecure_seed: int | None,
    checkpoint: str | Path | None,
    progress: Progress | None,
) -> PrivateFit:
    """Pay, query the noisy sums, and train `module` on the whitened records."""
    d = records.X.shape[1]
    classes = module.encoder[0].in_features - d
    _, asked = INITIAL_QUERIES[settings.scaling]

    def read(noisy: Array) -> Measured:
        return read_sums(noisy, plan, settings.scaling, classes, d)

    def rows(whitener: Whitener) -> Tensor:
        return with_labels(whitener.forward(records.X, records.codes[:, 0]), records.codes, [classes])

    sums = exact_query(records.X, records.codes[:, 0], subjects, classes, reference, asked)
    run = PrivateRun(
        module,
        rows(Whitener.bare(reference, classes)),
        CVAELoss(settings.beta),
        plan,
        ledger,
        holding,
        subject=subjects,
        purpose=purpose,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        insecure_seed=insecure_seed,
        checkpoint=checkpoint,
        progress=progress,
        initial_query=InitialQuery(sums, lambda noisy: rows(Whitener.read(read(noisy), reference))),
    )
    history = run.run()
    run.remove_checkpoint()
    assert run.noisy is not None
    found = read(run.noisy)
    return PrivateFit(Whitener.read(found, reference), found.shares, run.charge, history)


def folded(
    module: CVAE, whitener: Whitener, shares: Array, tensors: Mapping[str, npt.NDArray[np.float32]], *, noise: bool
) -> Tensors:
    """Tensors of a release: the way back to raw vectors is folded into the last layer and the class offsets.

    With noisy class means, the decoder's own mean of each class is subtracted: it would only add noise to them. The
    part of the squared length that class means and decoder do not explain is spread as in the public statistics. It
    reads noisy results only, so it costs nothing.

    Parameters
    ----------
    module
        The privately trained CVAE.
    whitener
        The map between raw vectors and network inputs.
    shares
        The noisy frequency of each class; they sum to 1.
    tensors
        The exported decoder, from `export_decoder`; the last two are weight and bias of the last layer.
    noise
        Whether to add the unexplained spread, as "noise_factor" and "noise_scale".

    Returns
    -------
    dict
        `tensors` with the last layer changed, and "span", "offset" and the noise added.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate import export_decoder
    >>> from locum.generate.private import Whitener, folded
    >>> from locum.nets import plain_cvae
    >>> net = plain_cvae(dim=3, condition=2, hidden=(4,), latent=2, sigmoid=False)
    >>> whitener, (_, tensors) = Whitener.bare(load_reference("none", 3), 2), export_decoder(net.decoder)
    >>> sorted(set(folded(net, whitener, np.array([0.5, 0.5]), tensors, noise=True)) - set(tensors))
    ['noise_factor', 'noise_scale', 'offset', 'span']
    """
    d, classes = whitener.reference.dim, len(shares)
    energy, centers = zip(*(_moments(module, c, classes) for c in range(classes)), strict=True)
    own = np.stack(centers) / np.sqrt(d)
    offset = whitener.means - own if whitener.means.any() else whitener.means
    # Squared length of the draws: around their mean, plus that of the mean where it ends up.
    explained = shares @ (np.array(energy) / d + np.square(offset + own).sum(axis=1))
    out = whitener.folded(tensors, offset)
    if noise:
        factor, scale = whitener.reference.factors()
        spread = np.float32(whitener.length * np.sqrt((1 - min(float(explained), _MOST)) / d))
        out |= {"noise_factor": spread * factor, "noise_scale": spread * scale}
    return out


def _moments(module: CVAE, label: int, classes: int) -> tuple[float, Array]:
    """Mean squared distance of the decoder's vectors of a class from their mean, and that mean.

    The seed is public, like the weights.
    """
    z = torch.randn(_DRAWS, module.latent, generator=seeded(0))
    with torch.no_grad():
        drawn = module.decode(z, torch.eye(classes)[label].expand(len(z), -1)).double()
    center = drawn.mean(dim=0)
    return float(torch.square(drawn - center).sum(dim=1).mean()), center.numpy()
