"""`plan`: what a private fit would do and cost; no record is read."""

from __future__ import annotations

import math
from typing import Any

from locum.errors import ConfigError
from locum.recipes.generators import generator_class
from locum.types import DP, at_least


def make_plan(
    budget: DP,
    *,
    generator: str = "auto",
    batch: int | None = None,
    epochs: float | None = None,
    clip: float | None = None,
) -> dict[str, Any]:
    """Say what a private fit would do and cost, from public numbers alone: noisy sums, or noisy training steps.

    Parameters
    ----------
    budget
        The budget; with `n_public` for noisy training steps.
    generator
        "gaussian", "cvae" or "cgan"; "sgd" stands for any network; "auto" is what `choose_generator` says.
    batch, epochs, clip
        For training: expected batch size, passes over the data, and the largest norm of a gradient. None: the
        generator's default (for "sgd": 256, 10 and 1).

    Returns
    -------
    dict
        `generator`, and the plan: among others `noise_multiplier`, `epsilon_spent` and `events`.

    Examples
    --------
    >>> from locum.recipes import make_plan
    >>> from locum.types import DP
    >>> plan = make_plan(DP(epsilon=1.0, delta=1e-6))
    >>> plan["generator"], round(plan["noise_multiplier"], 1)
    ('gaussian', 4.2)
    """
    # Imported here: `explain` needs none of it.
    from locum.accounting import plan_head, plan_sgd
    from locum.generate import PRIVATE_GENERATORS, choose_generator

    if generator == "auto":
        generator = choose_generator(budget).generator
    if generator == "sgd":
        size, passes, bound = (b if a is None else a for a, b in ((batch, 256), (epochs, 10), (clip, 1.0)))
        made = plan_sgd(budget, batch=int(size), epochs=passes, clip=bound)
        return {"generator": generator, **made.to_dict()}
    if generator not in PRIVATE_GENERATORS:
        raise ConfigError(f"`generator` must be auto, {', '.join(PRIVATE_GENERATORS)} or sgd; got {generator!r}.")
    wanted = {"batch_size": batch, "max_epochs": epochs, "clip": clip}
    given = {name: value for name, value in wanted.items() if value is not None}
    if generator == "gaussian" and not given:
        # No generator, and none of the packages that fitting needs.
        return {"generator": generator, **plan_head(budget).to_dict()}
    kind = generator_class(generator)
    if unknown := sorted(set(given) - set(kind._get_param_names())):
        raise ConfigError(f"The generator {generator!r} has no setting {unknown[0]!r}: leave it out.")
    # The plan does not depend on the classes.
    model: Any = kind(privacy=budget, classes=(0, 1), **given)
    return {"generator": generator, **model.plan().to_dict()}


def explain(budget: DP) -> list[str]:
    """Explain what the numbers of a budget mean and how to choose them.

    Parameters
    ----------
    budget
        The budget to explain.

    Returns
    -------
    list of str
        One paragraph each on relation, epsilon, delta, `n_public` and unit.

    Examples
    --------
    >>> from locum.recipes import explain
    >>> from locum.types import DP
    >>> for paragraph in explain(DP(epsilon=1.0, delta=1e-6, n_public=1000)):
    ...     print(paragraph.split(":")[0])
    relation add-or-remove
    epsilon 1
    delta 1e-06
    n_public 1000
    unit record
    """
    n, unit = budget.n_public, budget.unit
    one = "a subject with all its records" if unit == "subject" else "one record"
    # Odds of one to one become exp(epsilon) to one; beyond 700 a float overflows, and the guarantee means nothing.
    factor = at_least(math.exp(min(budget.epsilon, 700.0)))
    sure = at_least(100 / (1 + math.exp(-budget.epsilon)))
    largest = f"1/(10 n), here {1 / (10 * n):.3g}," if n else "1/(10 n)"
    hidden = {
        "add-or-remove": f"whether {one} was among the data. The usual choice; the number of {unit}s is hidden too",
        "replace-one": f"the values of {one}. Its presence and the number of {unit}s count as known; the same "
        "epsilon needs about twice the noise",
    }
    return [
        f"relation {budget.relation}: hides {hidden[budget.relation]}. It holds against anyone, whatever else they "
        "know.",
        f"epsilon {budget.epsilon:g}: a release changes the odds of any guess about that by a factor of at most "
        f"{factor}. A guess that was 50:50 before is right at most {sure} % of the time after. 1 is usual and "
        "strong; above 4 rely on measured attacks too. Releases of the same data add up.",
        f"delta {budget.delta:g}: the probability that the guarantee fails altogether. With n {unit}s, a delta of "
        f"1/n would allow one of them to be published, so at most {largest} is accepted. A smaller one costs little.",
        f"n_public {n or '?'}: about how many {unit}s there are, as a number that may be public. The true number is "
        "private: round it. Noisy training needs it, for its steps and batches; noisy sums do not. A poor guess "
        "costs usefulness, never privacy.",
        f"unit {unit}: a record is one image or row; a subject is one person or patient with all their records. If "
        "subjects have several records, use subject: a guarantee per record does not cover all of them together.",
    ]
