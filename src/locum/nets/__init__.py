"""Networks only: no loop, no files, no choice of device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.nets.baselines import (
        Added as Added,
        ColumnTypes as ColumnTypes,
        ImageExtractor as ImageExtractor,
        RecordAutoencoder as RecordAutoencoder,
        guesser as guesser,
        masker as masker,
        mlp as mlp,
        noise_maker as noise_maker,
    )
    from locum.nets.cgan import CGAN as CGAN, plain_cgan as plain_cgan
    from locum.nets.cvae import (
        CVAE as CVAE,
        ResidualBlock as ResidualBlock,
        plain_cvae as plain_cvae,
        residual_cvae as residual_cvae,
    )
    from locum.nets.judges import image_judge as image_judge, table_judge as table_judge
    from locum.nets.obfuscator import (
        Obfuscator as Obfuscator,
        image_obfuscator as image_obfuscator,
        table_obfuscator as table_obfuscator,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
