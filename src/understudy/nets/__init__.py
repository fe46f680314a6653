"""Networks, and nothing but networks: no loop, no files, no choice of device."""

from understudy.nets.cgan import CGAN, plain_cgan
from understudy.nets.cvae import CVAE, ResidualBlock, plain_cvae, residual_cvae
from understudy.nets.obfuscator import Obfuscator, image_obfuscator, table_obfuscator

__all__ = [
    "CGAN",
    "CVAE",
    "Obfuscator",
    "ResidualBlock",
    "image_obfuscator",
    "plain_cgan",
    "plain_cvae",
    "residual_cvae",
    "table_obfuscator",
]
