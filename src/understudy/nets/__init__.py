"""Networks, and nothing but networks: no loop, no files, no choice of device."""

from understudy.nets.cgan import CGAN, plain_cgan
from understudy.nets.cvae import CVAE, ResidualBlock, plain_cvae, residual_cvae

__all__ = ["CGAN", "CVAE", "ResidualBlock", "plain_cgan", "plain_cvae", "residual_cvae"]
