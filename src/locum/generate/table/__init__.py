"""A table with a guarantee: declared columns, noisy counts, and a tree of columns that is fitted to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.generate.table.columns import CategoryColumn as CategoryColumn, NumberColumn as NumberColumn
    from locum.generate.table.counts import CountQuery as CountQuery, row_weights as row_weights
    from locum.generate.table.domain import TableDomain as TableDomain
    from locum.generate.table.groups import merge_cells as merge_cells
    from locum.generate.table.learner import TableLearner as TableLearner
    from locum.generate.table.model import TableModel as TableModel
    from locum.generate.table.private_table import PrivateTable as PrivateTable
    from locum.generate.table.saved import (
        SavedTable as SavedTable,
        is_table as is_table,
        open_table as open_table,
        paid_table as paid_table,
        save_table as save_table,
    )
    from locum.generate.table.tree import LabelTree as LabelTree, best_tree as best_tree

__getattr__, __dir__, __all__ = lazy_exports(__name__)
