"""Keys of sites for tests with masked sums."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from locum.federated import make_site_key


def pinned(files: Mapping[str, Path]) -> dict[str, str]:
    """The public keys of sites by name, as terms hold them; a site that has none gets one."""
    for name, file in files.items():
        if not (file.parent / f"{name}.pub").exists():
            make_site_key(file.parent, name)
            file.write_text(file.read_text() + f'key = "{name}.key"\n')
    return {name: (file.parent / f"{name}.pub").read_text().strip() for name, file in files.items()}
