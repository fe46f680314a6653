"""Files to `EmbeddingSet` and back; splits, folds, long tails, partitions; samples that need no download.

Formats: .npz, .parquet, .safetensors and .csv; tables of mixed columns become pandas DataFrames. An error about a
file is one sentence that names the path as given and no other file: file names can be patients' names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.data.batches import (
        gather as gather,
        open_batches as open_batches,
        opens_in_pieces as opens_in_pieces,
    )
    from locum.data.cluster import ray_cluster as ray_cluster
    from locum.data.duplicates import (
        Copy as Copy,
        check_droppable as check_droppable,
        copies_of as copies_of,
        count_copies_of as count_copies_of,
        count_duplicates as count_duplicates,
        drop_duplicates as drop_duplicates,
        find_duplicates as find_duplicates,
        list_copies as list_copies,
    )
    from locum.data.engines import (
        Engine as Engine,
        LocalEngine as LocalEngine,
        RayEngine as RayEngine,
        total as total,
    )
    from locum.data.files import (
        SUFFIXES as SUFFIXES,
        is_drawn as is_drawn,
        read_embeddings as read_embeddings,
        read_splits as read_splits,
        write_embeddings as write_embeddings,
    )
    from locum.data.formats.adult import read_adult as read_adult
    from locum.data.formats.assemble import (
        ALL as ALL,
        SPLITS as SPLITS,
        RawSplit as RawSplit,
        assemble as assemble,
    )
    from locum.data.formats.diabetes import DIABETES_FILES as DIABETES_FILES, read_diabetes as read_diabetes
    from locum.data.formats.frames import (
        read_frame as read_frame,
        read_text_frame as read_text_frame,
        write_frame as write_frame,
    )
    from locum.data.formats.mixed import MixedTable as MixedTable, read_table as read_table
    from locum.data.formats.npz import (
        StreamedSplit as StreamedSplit,
        is_image_npz as is_image_npz,
        read_image_arrays as read_image_arrays,
        write_npz_stream as write_npz_stream,
    )
    from locum.data.formats.parquet import (
        DRAWN as DRAWN,
        EMBEDDED as EMBEDDED,
        write_parquet_stream as write_parquet_stream,
    )
    from locum.data.header import (
        LABEL_COLUMNS as LABEL_COLUMNS,
        feature_columns as feature_columns,
        guessed_label as guessed_label,
    )
    from locum.data.held_out import hold_out as hold_out
    from locum.data.ledger import ledger_for as ledger_for, place_of as place_of
    from locum.data.long_tail import long_tail_counts as long_tail_counts, make_long_tail as make_long_tail
    from locum.data.memory import check_memory as check_memory, free_memory as free_memory
    from locum.data.partition import (
        partition_by as partition_by,
        partition_dirichlet as partition_dirichlet,
        partition_iid as partition_iid,
    )
    from locum.data.ranges import read_ranges as read_ranges
    from locum.data.reference import (
        REFERENCES as REFERENCES,
        Reference as Reference,
        load_reference as load_reference,
        reference_for as reference_for,
        reference_from_ranges as reference_from_ranges,
    )
    from locum.data.samples import (
        SAMPLES as SAMPLES,
        load_digit_images as load_digit_images,
        load_sample as load_sample,
    )
    from locum.data.splits import (
        check_trainable as check_trainable,
        kfold as kfold,
        round_shares as round_shares,
        split as split,
        stratified_split as stratified_split,
        subject_split as subject_split,
    )
    from locum.data.table_codec import TableCodec as TableCodec
    from locum.data.whole_subjects import Distinct as Distinct, by_subject as by_subject

__getattr__, __dir__, __all__ = lazy_exports(__name__)
