"""Every attack by its name, and by what an attacker needs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from locum.audit.attacks.attribute_inference import AttributeInference
from locum.audit.attacks.base import Attack
from locum.audit.attacks.closest_record import ClosestRecord
from locum.audit.attacks.density_ratio import DensityRatio
from locum.audit.attacks.elbo import EncoderELBO
from locum.audit.attacks.hole import Hole
from locum.audit.attacks.latent_search import LatentSearch
from locum.audit.attacks.likelihood_ratio import LikelihoodRatio
from locum.audit.attacks.linkage import Linkage
from locum.audit.attacks.lira import LiRA
from locum.audit.attacks.nearest_distance import NearestDistance
from locum.audit.attacks.reidentification import Reidentification
from locum.audit.attacks.rmia import RMIA
from locum.audit.attacks.singling_out import SinglingOut
from locum.audit.attacks.sum_lira import SumLiRA
from locum.audit.shadows.shadows import ShadowEngine, check_shadows
from locum.errors import ConfigError
from locum.types import Progress

Group = Literal["samples", "decoder", "shadows"]


@dataclass(frozen=True, slots=True)
class Entry:
    """An attack with its usual settings. `slow` ones run only on request, `timed` ones with a limit on their time."""

    make: Callable[[], Attack]
    group: Group
    slow: bool = False
    timed: bool = False


# In the order in which they are run and shown: what needs least comes first.
ATTACKS: Mapping[str, Entry] = {
    "nearest distance": Entry(NearestDistance, "samples"),
    "closest record": Entry(ClosestRecord, "samples"),
    "density ratio": Entry(DensityRatio, "samples"),
    "record linkage": Entry(Linkage, "samples"),
    "singling out": Entry(SinglingOut, "samples"),
    "attribute inference": Entry(AttributeInference, "samples"),
    "re-identification": Entry(Reidentification, "samples"),
    "hole": Entry(Hole, "samples"),
    "likelihood ratio": Entry(LikelihoodRatio, "samples"),
    "latent search": Entry(LatentSearch, "decoder"),
    "ELBO": Entry(EncoderELBO, "decoder", slow=True),
    "LiRA on sums": Entry(SumLiRA, "decoder", timed=True),
    "LiRA": Entry(LiRA, "shadows", timed=True),
    "RMIA": Entry(RMIA, "shadows", slow=True),
}


def _of(group: Group) -> dict[str, Callable[[], Attack]]:
    return {name: entry.make for name, entry in ATTACKS.items() if entry.group == group}


# Attackers with samples; with the decoder; with the decoder, the training settings and much computing time.
SAMPLE_ATTACKS: Mapping[str, Callable[[], Attack]] = _of("samples")
DECODER_ATTACKS: Mapping[str, Callable[[], Attack]] = _of("decoder")
SHADOW_ATTACKS: Mapping[str, Callable[[], Attack]] = _of("shadows")
# What is run unless attacks are named, with so many shadows and so much time for them. What a release claims does not
# change it.
DEFAULT_SHADOWS = 16
DEFAULT_MINUTES = 5.0
DEFAULT_ATTACKS: tuple[str, ...] = tuple(name for name, entry in ATTACKS.items() if not entry.slow)


def attack_name(typed: str) -> str:
    """The name of an attack as reports show it; case does not matter, and "-" or "_" may replace a space.

    Parameters
    ----------
    typed
        What someone typed.

    Returns
    -------
    str
        A key of `ATTACKS`.

    Raises
    ------
    ConfigError
        If there is no such attack; the text lists all.

    Examples
    --------
    >>> from locum.audit import attack_name
    >>> attack_name("nearest-distance"), attack_name("lira")
    ('nearest distance', 'LiRA')
    """
    known = {_plain(name): name for name in ATTACKS}
    if _plain(typed) not in known:
        groups: dict[str, list[str]] = {}
        for name, entry in ATTACKS.items():
            groups.setdefault(entry.group, []).append(name)
        known_names = "; ".join(f"{', '.join(names)} (by {group})" for group, names in groups.items())
        raise ConfigError(f"There is no attack {typed!r}; there are {known_names}.")
    return known[_plain(typed)]


def make_attack(name: str, *, repeats: int = 0, minutes: float | None = None) -> Attack:
    """An attack with its usual settings. `repeats` counts records that are in both sets; `ClosestRecord` needs it.

    With `minutes` an attack with shadows trains as many of the default number as fit in that time.

    Each attack with shadows trains its own; use `shadow_attacks` for attacks that share them.
    """
    known = attack_name(name)
    if ATTACKS[known].timed and minutes is not None:
        kind = LiRA if known == "LiRA" else SumLiRA
        return kind(shadows=DEFAULT_SHADOWS, seconds=60 * minutes)
    return ClosestRecord(repeats=repeats) if known == "closest record" else ATTACKS[known].make()


def shadow_attacks(
    shadows: int,
    seed: int,
    state: str | Path,
    *,
    seconds: float | None = None,
    names: Iterable[str] = tuple(SHADOW_ATTACKS),
    engine: ShadowEngine | None = None,
    progress: Progress | None = None,
) -> tuple[LiRA | RMIA, ...]:
    """Attacks that share shadows: the first trains them, the others read them from a private file.

    After an interruption the same call with the same seed continues.

    Parameters
    ----------
    shadows
        How many generators to train: an even number, 4 or more. 64 is usual.
    seed
        Fixes the halves of the records and the training.
    state
        The file for the statistics of all records under the shadows. Private: it is written with mode 0600.
    seconds
        How long training may take; None: as long as it takes.
    names
        Which attacks, as for `attack_name`: "LiRA", "RMIA" or both.
    engine
        Where shadows are trained, such as `RayShadows`; None: in this process.
    progress
        Called with (shadows done, total); None: nothing is shown.

    Returns
    -------
    tuple of LiRA or RMIA
        In the order of `names`, for `audit(attacks=...)`.

    Examples
    --------
    >>> from locum.audit import shadow_attacks
    >>> [attack.name for attack in shadow_attacks(64, seed=0, state="shadows.safetensors")]
    ['LiRA', 'RMIA']
    """
    # The training would say the same, but only after the other attacks have run.
    check_shadows(shadows)
    kinds: Mapping[str, type[LiRA | RMIA]] = {"LiRA": LiRA, "RMIA": RMIA}
    return tuple(
        kinds[attack_name(name)](
            shadows=shadows, seed=seed, state=state, seconds=seconds, engine=engine, progress=progress
        )
        for name in names
    )


def _plain(name: str) -> str:
    return name.casefold().replace("-", " ").replace("_", " ").strip()
