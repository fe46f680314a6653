"""Generators: each learns from records and releases what stands in for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.generate.adversary import AS_REAL as AS_REAL
    from locum.generate.base import BaseGenerator as BaseGenerator, Records as Records
    from locum.generate.cgan import CGANGenerator as CGANGenerator
    from locum.generate.coding import Coder as Coder
    from locum.generate.covariance import safe_rank as safe_rank
    from locum.generate.cvae import CVAEGenerator as CVAEGenerator, hold_out as hold_out
    from locum.generate.export import export_decoder as export_decoder
    from locum.generate.gaussian import ClassGaussian as ClassGaussian
    from locum.generate.ksame import KSame as KSame, k_groups as k_groups
    from locum.generate.presets import (
        PRESETS as PRESETS,
        PRIVATE_GENERATORS as PRIVATE_GENERATORS,
        Preset as Preset,
        choose_generator as choose_generator,
    )
    from locum.generate.replicas import replica as replica
    from locum.generate.scaling import Scaler as Scaler, fit_scaler as fit_scaler, with_labels as with_labels
    from locum.generate.vae import VAEGenerator as VAEGenerator

__getattr__, __dir__, __all__ = lazy_exports(__name__)
