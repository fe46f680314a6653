"""Where networks are trained: the one place that chooses a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from locum.errors import ConfigError

DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(name: str = "auto") -> torch.device:
    """The device to train on.

    Random numbers are drawn on the CPU and moved, so a seed means the same on every device; sums are rounded
    differently, so weights differ in their last digits.

    Parameters
    ----------
    name
        "auto": the GPU that torch can use ("cuda", else "mps"), else "cpu"; or one of these names, also "cuda:1".

    Returns
    -------
    torch.device
        A device that this machine has.

    Raises
    ------
    ConfigError
        If the name is unknown, or this machine has no such device.

    Examples
    --------
    >>> from locum.train import pick_device
    >>> pick_device("cpu")
    device(type='cpu')
    """
    kind, _, number = str(name).partition(":")
    if kind not in DEVICES or (number and (kind != "cuda" or not number.isdecimal())):
        raise ConfigError(f"`device` must be one of {', '.join(DEVICES)}; got {name!r}.")
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind == "auto":
        return torch.device(next(one for one in ("cuda", "mps", "cpu") if has[one]))
    if not has[kind] or (number and int(number) >= torch.cuda.device_count()):
        raise ConfigError(f"Torch cannot use the device {name!r} here: take 'auto', or install torch for it.")
    return torch.device(name)


def cpu_only(name: str) -> torch.device:
    """The CPU, where fits with differential privacy run; another device is refused.

    That a record's gradient does not depend on the others in its batch is an assumption of the guarantee. It is
    tested for the CPU; on GPUs the order of sums changes with the size of a batch.

    Parameters
    ----------
    name
        What was asked for: "auto" or "cpu".

    Returns
    -------
    torch.device
        The CPU.

    Raises
    ------
    ConfigError
        If another device was asked for.

    Examples
    --------
    >>> from locum.train import cpu_only
    >>> cpu_only("auto")
    device(type='cpu')
    """
    if name in ("auto", "cpu"):
        return torch.device("cpu")
    raise ConfigError(
        f"A fit with differential privacy runs on the CPU, for which its assumptions are tested; got {name!r}: leave "
        "`device` out."
    )


@contextmanager
def seeded_weights(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generator, which initial weights and dropout use, and restore it afterwards.

    Parameters
    ----------
    seed
        A whole number.
    device
        Where dropout draws, besides the CPU.

    Returns
    -------
    context manager
        Inside it, the global generator is seeded.

    Examples
    --------
    >>> import torch
    >>> from locum.train import seeded_weights
    >>> with seeded_weights(0):
    ...     first = torch.nn.Linear(2, 2)
    >>> with seeded_weights(0):
    ...     again = torch.nn.Linear(2, 2)
    >>> torch.equal(first.weight, again.weight)
    True
    """
    with torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
