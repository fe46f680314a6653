"""Files to `EmbeddingSet` and back; splits, folds, long tails, sites; samples that need no download.

Formats: .npz, .parquet, .safetensors and .csv; tables of mixed columns become pandas DataFrames. Whatever is wrong
with a file is told in one sentence that names the path as given and no other file: file names can be patients' names.
"""

from understudy.data.adult import ADULT_COLUMNS, read_adult
from understudy.data.checks import check_trainable
from understudy.data.frames import read_frame, write_frame
from understudy.data.longtail import long_tail_counts, make_long_tail
from understudy.data.npz import is_image_npz, read_image_arrays
from understudy.data.partition import partition_by, partition_dirichlet, partition_iid
from understudy.data.reader import read_embeddings, read_splits
from understudy.data.samples import SAMPLES, load_digit_images, load_sample
from understudy.data.splits import each_alone, kfold, split, stratified_split, subject_split
from understudy.data.table_codec import TableCodec
from understudy.data.writer import write_embeddings

__all__ = [
    "ADULT_COLUMNS",
    "SAMPLES",
    "TableCodec",
    "check_trainable",
    "each_alone",
    "is_image_npz",
    "kfold",
    "load_digit_images",
    "load_sample",
    "long_tail_counts",
    "make_long_tail",
    "partition_by",
    "partition_dirichlet",
    "partition_iid",
    "read_adult",
    "read_embeddings",
    "read_frame",
    "read_image_arrays",
    "read_splits",
    "split",
    "stratified_split",
    "subject_split",
    "write_embeddings",
    "write_frame",
]
