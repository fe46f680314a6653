"""A site's rounds of training in mode "decoder": DP-SGD on its own encoder and the shared decoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from locum.accounting import PaidPlan, PlanSteps, SGDPlan
from locum.errors import ConfigError, FormatError, PrivacyError
from locum.federated.aggregation import decoder_tensors, initial_network
from locum.federated.protocol import Reply, Request
from locum.federated.settings import FederationSettings
from locum.federated.site_budget import SiteBudget
from locum.federated.site_file import SiteFile
from locum.federated.state import SiteState
from locum.federated.terms import agreed_reference, plan_site
from locum.generate import with_labels
from locum.generate.private import Whitener, subjects
from locum.train import CVAELoss
from locum.train.dp import PrivateRun


def train_round(
    request: Request, settings: FederationSettings, state: SiteState, file: SiteFile, budget: SiteBudget
) -> Reply:
    """Train for one round within what was paid, and send the decoder; the encoder stays in the site's state."""
    records = file.records(settings)
    plan, train = plan_site(settings, file.privacy(), len(records.train)), records.train
    training = plan.training
    if training is None or not state.identity:
        raise ConfigError("A site trains only in mode 'decoder', and only after it has joined.")
    network = initial_network(settings)
    _load(network.decoder, request.tensors, "decoder/")
    if state.encoder:
        _load(network.encoder, state.encoder, "")
    if (state.identity == "test") != (file.insecure_seed is not None):
        raise PrivacyError(
            "`insecure_seed` was added or removed since this site joined: a run is either paid for or a test."
        )
    means, length = request.tensors.get("means"), _number(request, "length")
    # With too few rows only the sites that have the missing class would fail, which would reveal them.
    if means is None or means.shape != (len(settings.classes), settings.dim):
        raise FormatError("A request to train needs one mean for each class.")
    reference = agreed_reference(settings, file.reference_file(train.info), train.info)
    subject = subjects(train.subject) if file.unit == "subject" else None
    whitener = Whitener(reference, means.astype(np.float64), length)
    rows = with_labels(whitener.forward(train.X, train.y), train.y[:, None], [len(settings.classes)])
    with budget.ledger() as ledger:
        part = PlanSteps(state.used, state.used + plan.steps_per_round, None)
        if ledger is not None and isinstance(training, SGDPlan):
            part = PaidPlan.reopen(training, ledger, state.identity).next(plan.steps_per_round)
        run = PrivateRun(
            network,
            rows,
            CVAELoss(settings.beta),
            training,
            ledger,
            file.holding,
            subject=subject,
            learning_rate=settings.learning_rate,
            insecure_seed=file.insecure_seed,
            part=part,
        )
        run.run()
    state.used = part.stop
    state.encoder = {name: value.detach().numpy().copy() for name, value in network.encoder.state_dict().items()}
    tensors = {f"decoder/{name}": value for name, value in decoder_tensors(network).items()}
    return Reply(request.step, request.round, request.nonce, "", {}, tensors)


def _number(request: Request, name: str) -> float:
    value = request.facts.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        raise FormatError(f"A request to {request.step} must give `{name}`, a number; got {str(value)[:80]!r}.")
    return float(value)


def _load(module: torch.nn.Module, tensors: Any, prefix: str) -> None:
    given = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    wanted = module.state_dict()
    fits = given.keys() == wanted.keys() and all(tuple(given[k].shape) == tuple(wanted[k].shape) for k in wanted)
    if not fits or not all(np.isfinite(v).all() for v in given.values()):
        raise FormatError("The weights in the request do not fit the network that the settings describe.")
    module.load_state_dict({k: torch.from_numpy(np.array(v, dtype=np.float32)) for k, v in given.items()})
