"""Images become vectors: a frozen vision model, a contract on pixels, a cache that resumes.

Fetched when first used: a receiver who brings vectors needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.embed.backbones import (
        BACKBONES,
        DEFAULT_BACKBONE,
        Backbone,
        BackboneFacts,
        backbone_for,
        load_backbone,
    )
    from understudy.embed.decode import UnreadableImageError, decode_image
    from understudy.embed.embedding import Embedded, StrictError, embed_images
    from understudy.embed.image_attributes import ImageTable, read_celeba, read_image_attributes, read_image_npz
    from understudy.embed.preprocessing import Preprocessing
    from understudy.embed.sources import ImageItem, ImageSource, holds_images, open_images

__all__ = [
    "BACKBONES",
    "DEFAULT_BACKBONE",
    "Backbone",
    "BackboneFacts",
    "Embedded",
    "ImageItem",
    "ImageSource",
    "ImageTable",
    "Preprocessing",
    "StrictError",
    "UnreadableImageError",
    "backbone_for",
    "decode_image",
    "embed_images",
    "holds_images",
    "load_backbone",
    "open_images",
    "read_celeba",
    "read_image_attributes",
    "read_image_npz",
]

_HOMES = {
    "BACKBONES": "understudy.embed.backbones",
    "DEFAULT_BACKBONE": "understudy.embed.backbones",
    "Backbone": "understudy.embed.backbones",
    "BackboneFacts": "understudy.embed.backbones",
    "Embedded": "understudy.embed.embedding",
    "ImageItem": "understudy.embed.sources",
    "ImageSource": "understudy.embed.sources",
    "ImageTable": "understudy.embed.image_attributes",
    "Preprocessing": "understudy.embed.preprocessing",
    "StrictError": "understudy.embed.embedding",
    "UnreadableImageError": "understudy.embed.decode",
    "backbone_for": "understudy.embed.backbones",
    "decode_image": "understudy.embed.decode",
    "embed_images": "understudy.embed.embedding",
    "holds_images": "understudy.embed.sources",
    "load_backbone": "understudy.embed.backbones",
    "open_images": "understudy.embed.sources",
    "read_celeba": "understudy.embed.image_attributes",
    "read_image_npz": "understudy.embed.image_attributes",
    "read_image_attributes": "understudy.embed.image_attributes",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
