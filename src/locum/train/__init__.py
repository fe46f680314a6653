"""Training: the loop without privacy, its checkpoints and losses; `locum.train.dp` has DP-SGD."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.train.checkpoint import (
        Checkpoint as Checkpoint,
        History as History,
        fingerprint as fingerprint,
    )
    from locum.train.device import (
        DEVICES as DEVICES,
        cpu_only as cpu_only,
        pick_device as pick_device,
        seeded_weights as seeded_weights,
    )
    from locum.train.loop import (
        LoopSettings as LoopSettings,
        run_loop as run_loop,
        seeded as seeded,
        shuffled_batches as shuffled_batches,
    )
    from locum.train.losses import (
        BlockCrossEntropy as BlockCrossEntropy,
        CVAELoss as CVAELoss,
        RowLoss as RowLoss,
        RowLossByAutograd as RowLossByAutograd,
    )
    from locum.train.moments import ClassMoments as ClassMoments
    from locum.train.shuffled import (
        HeldOut as HeldOut,
        ShuffledRows as ShuffledRows,
        Survey as Survey,
        held_out_records as held_out_records,
        record_units as record_units,
        survey as survey,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
