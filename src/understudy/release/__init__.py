"""Releases: written whole, checked before use, sampled without the code that made them."""

from understudy.release.build import EmbeddingEntry, GaussianSpec, NetworkSpec, RowsSpec, build_release, rounded_joint
from understudy.release.folder import check_file
from understudy.release.manifest import Condition, Manifest, MixtureSpec
from understudy.release.passport import Passport, build_passport, passport_schema
from understudy.release.release import Release, load
from understudy.release.space import SPACES, to_space
from understudy.release.verify import Verification, verify
from understudy.release.whole import check_target

__all__ = [
    "SPACES",
    "Condition",
    "EmbeddingEntry",
    "GaussianSpec",
    "Manifest",
    "MixtureSpec",
    "NetworkSpec",
    "Passport",
    "Release",
    "RowsSpec",
    "Verification",
    "build_passport",
    "build_release",
    "check_file",
    "check_target",
    "load",
    "passport_schema",
    "rounded_joint",
    "to_space",
    "verify",
]
