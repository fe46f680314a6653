"""Publish a table that keeps who earns well and hides who is a woman: fit, measure, choose a knob, share.

The obfuscator never sees what is private; it is used only to measure, and is not shared.

    python examples/obfuscate_table.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from locum.obfuscate import TableObfuscator, load_obfuscator, save_obfuscator, trade_off


def subjects(n: int, seed: int) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
    """Made-up records: age and hours correlate with income, the job with sex."""
    rng = np.random.default_rng(seed)
    rich, woman = rng.random(n) < 0.4, rng.random(n) < 0.5
    table = pd.DataFrame(
        {
            "age": (rng.normal(35, 8, n) + 12 * rich).clip(18, 80).round().astype(int),
            "hours": (rng.normal(36, 6, n) + 8 * rich).clip(5, 70).round().astype(int),
            "job": np.where(rng.random(n) < 0.85, np.where(woman, "teacher", "engineer"), "clerk"),
        }
    )
    return table, pd.Series(np.where(rich, ">50K", "<=50K"), name="income"), np.where(woman, "woman", "man")


def main() -> None:
    table, income, _ = subjects(2000, seed=0)
    model = TableObfuscator(max_epochs=30, random_state=0).fit(table, income)
    print(f"fitted on {len(table)} records, {model.parameters_:,} parameters")

    # What attackers and receivers find at each noise, on records it was not fitted on.
    found = trade_off(
        model,
        subjects(2000, seed=1),
        subjects(2000, seed=2),
        noises=[0, 1, 2, 4, 8],
        lambdas=[-50],
        judges=["trees"],
        copies=4,
    )
    private, utility = found.original()
    print(f"original records: attacker {private:.3f}, receiver {utility:.3f}")
    print(f"utility label alone: attacker {found.points[0].judgment.label_only:.3f}")
    for point in found.points:
        print(f"{point.name}: attacker {point.judgment.attacker:.3f}, receiver {point.judgment.utility:.3f}")
    chosen = found.pick(attacker_at_most=0.65)
    print("the least noise that keeps the attacker at .65:", chosen.name)

    # A trusted party shares the obfuscator; each provider sets the knobs.
    again = load_obfuscator(save_obfuscator(model, "obfuscator", overwrite=True))
    new, their_income, _ = subjects(5, seed=3)
    print(new.assign(income=their_income).to_string())
    print(again.transform(new, their_income, noise=chosen.noise, lambda_=-50).assign(income=their_income).to_string())
    print(f"local epsilon of one record: {again.local_epsilon(chosen.noise, delta=1e-5):.1f} at delta 1e-5")


if __name__ == "__main__":
    main()
