"""Networks, and nothing but networks: no loop, no files, no choice of device."""

from understudy.nets.cvae import CVAE, ResidualBlock, plain_cvae, residual_cvae

__all__ = ["CVAE", "ResidualBlock", "plain_cvae", "residual_cvae"]
