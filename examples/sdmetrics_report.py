"""Score a release with SDMetrics, the metrics of the Synthetic Data Vault, so that others can compare.

Needs `locum[fit]` and sdmetrics. The release is made from one half of a table of tumor measurements; the
other half is what SDMetrics compares with. Its scores describe shapes and pairs of columns: they are about
resemblance, not about privacy.

    python examples/sdmetrics_report.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sdmetrics.reports.single_table import QualityReport
from sklearn.datasets import load_breast_cancer

from locum.generate import ClassGaussian
from locum.release import Release


def halves(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table with the column `label`, in two random halves."""
    data = load_breast_cancer(as_frame=True)
    table = data.data.assign(label=np.asarray(data.target_names)[data.target])
    order = np.random.default_rng(seed).permutation(len(table))
    return table.iloc[order[::2]], table.iloc[order[1::2]]


def metadata(table: pd.DataFrame) -> dict:
    """What SDMetrics must know: which columns are numbers."""
    kinds = {name: {"sdtype": "numerical"} for name in table.columns}
    return {"columns": {**kinds, "label": {"sdtype": "categorical"}}}


def scores(real: pd.DataFrame, release: Release, n: int) -> dict[str, float]:
    """SDMetrics' quality report: overall, column shapes, and trends of pairs of columns."""
    drawn = release.to_pandas(n, random_state=0)[list(real.columns)]
    report = QualityReport()
    report.generate(real, drawn, metadata(real), verbose=False)
    found = report.get_properties().set_index("Property")["Score"].to_dict()
    return {"Overall": report.get_score(), **found}


def main() -> None:
    fitted, held_out = halves()
    features = fitted.drop(columns="label")
    generator = ClassGaussian(random_state=0).fit(features, fitted["label"])
    release = generator.release(no_dp=True)  # a release that leaves should have privacy=DP(...)
    for name, value in scores(held_out, release, n=len(held_out)).items():
        print(f"{name:20s} {value:.3f}")


if __name__ == "__main__":
    main()
