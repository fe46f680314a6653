"""Generators: each learns from records and shares what stands in for them."""

from understudy.generate.base import BaseGenerator
from understudy.generate.cgan import CGANGenerator
from understudy.generate.choose import Choice, choose_generator
from understudy.generate.cvae import CVAEGenerator
from understudy.generate.gaussian import ClassGaussian
from understudy.generate.grouping import k_groups
from understudy.generate.ksame import KSame
from understudy.generate.presets import PRESETS, Preset
from understudy.generate.replica import replica
from understudy.generate.vae import VAEGenerator

__all__ = [
    "PRESETS",
    "BaseGenerator",
    "CGANGenerator",
    "CVAEGenerator",
    "Choice",
    "ClassGaussian",
    "KSame",
    "Preset",
    "VAEGenerator",
    "choose_generator",
    "k_groups",
    "replica",
]
