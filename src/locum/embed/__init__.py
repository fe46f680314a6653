"""Images become vectors: a frozen vision model, a contract on pixels, a cache that resumes.

Imported on first use: a receiver who brings vectors needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.embed.attributes import (
        ImageTable as ImageTable,
        read_celeba as read_celeba,
        read_image_attributes as read_image_attributes,
        read_image_npz as read_image_npz,
    )
    from locum.embed.backbone import Backbone as Backbone
    from locum.embed.cache import can_keep as can_keep
    from locum.embed.decode import decode_image as decode_image
    from locum.embed.drawn_images import (
        IMAGES as IMAGES,
        keep_drawn_reference as keep_drawn_reference,
        make_drawn_reference as make_drawn_reference,
    )
    from locum.embed.embedding import (
        Embedded as Embedded,
        StrictError as StrictError,
        embed_images as embed_images,
        ledger_of as ledger_of,
    )
    from locum.embed.listing import holds_images as holds_images, open_images as open_images
    from locum.embed.pixels import UnreadableImageError as UnreadableImageError
    from locum.embed.preprocessing import Preprocessing as Preprocessing
    from locum.embed.ray_engine import RayEmbedding as RayEmbedding
    from locum.embed.registry import (
        BACKBONES as BACKBONES,
        DEFAULT_BACKBONE as DEFAULT_BACKBONE,
        BackboneFacts as BackboneFacts,
        backbone_for as backbone_for,
        load_backbone as load_backbone,
    )
    from locum.embed.scanning import ScannedImages as ScannedImages, scan_images as scan_images
    from locum.embed.shards import (
        ROW as ROW,
        ROWS_PER_FILE as ROWS_PER_FILE,
        EmbeddingEngine as EmbeddingEngine,
        LocalEmbedding as LocalEmbedding,
        ShardedVectors as ShardedVectors,
        check_shard_folder as check_shard_folder,
        embed_to_shards as embed_to_shards,
    )
    from locum.embed.sources import NO_CLASSES as NO_CLASSES, ImageItem as ImageItem, ImageSource as ImageSource

__getattr__, __dir__, __all__ = lazy_exports(__name__)
