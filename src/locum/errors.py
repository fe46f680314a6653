"""Every error that Locum raises on purpose.

::

    LocumError
    ├── ConfigError      (ValueError)   a setting is wrong: name, value and remedy are in the text
    │   ├── MissingExtraError (ImportError)   a package is not installed: the text gives the command
    │   └── NotApplicableError          an attack does not apply to this release or these records
    ├── DataError        (ValueError)   the data given cannot be used as they are
    │   └── DivergedError               training on them ended in a loss that is no number
    ├── NotFittedError   (ValueError, AttributeError)   sampled before `fit`
    ├── ReleaseError                    a release folder cannot be trusted or read
    │   ├── IntegrityError              its bytes are not those that its manifest lists
    │   ├── FormatError                 it is not a release, or breaks the format's rules
    │   └── SchemaVersionError          it was written for a newer Locum
    ├── CheckpointError                 a checkpoint belongs to another fit, or is damaged
    ├── PrivacyError                    the request would break a privacy guarantee
    └── PolicyError                     a policy that was asked for is not met (exit code 3)

The text of each is one sentence or two: what is wrong, what was given, what to do.
The program prints that text alone and ends with `exit_code`; a traceback means a bug of ours.
"""

from __future__ import annotations


class LocumError(Exception):
    """Root of the tree: `except LocumError` catches all that we foresee."""

    exit_code = 2


class ConfigError(LocumError, ValueError):
    """A public setting is wrong."""


# Which extra brings a package that the core does without, by the name it is imported under.
EXTRAS = {
    "sklearn": "fit",
    "threadpoolctl": "fit",
    "scipy": "fit",
    "dp_accounting": "fit",
    "opendp": "fit",
    "pandas": "fit",
    "pyarrow": "fit",
    "torch": "train",
    "PIL": "images",
    "onnx": "onnx",
    "onnxruntime": "images",
    "efficientnet_lite_pytorch": "images",
    "imblearn": "rebalance",
    "flwr": "federated",
    "ray": "cluster",
    "fsspec": "remote",
    "aiohttp": "remote",
    "huggingface_hub": "hub",
    "pydicom": "dicom",
    "transformers": "huggingface",
    "matplotlib": "figures",
    "fastapi": "studio",
    "h11": "studio",
    "uvicorn": "studio",
}


class MissingExtraError(ConfigError, ImportError):
    """A package is not installed that only some of Locum needs; the text gives the command that installs it."""

    def __init__(self, package: str, extra: str = "") -> None:
        self.package, self.extra = package, extra or EXTRAS[package]
        super().__init__(f"This needs {package}, which is not installed: pip install 'locum[{self.extra}]'.")


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """What to raise instead of an import error, if it is about a package of one of the extras."""
    package = (error.name or "").split(".")[0]
    return MissingExtraError(package) if package in EXTRAS else None


class NotApplicableError(ConfigError):
    """An attack does not apply to this release or these records; `reason` says why."""

    def __init__(self, attack: str, reason: str) -> None:
        super().__init__(f"The attack {attack!r} does not apply here: {reason}.")
        self.reason = reason


class DataError(LocumError, ValueError):
    """The data given cannot be used as they are."""


class DivergedError(DataError):
    """Training ended in a loss or weights that are no longer finite; other first weights may do better."""


class NotFittedError(LocumError, ValueError, AttributeError):
    """Something was asked of an estimator that has not seen data yet."""


class ReleaseError(LocumError):
    """A release folder cannot be read or trusted."""


class IntegrityError(ReleaseError):
    """Bytes differ from what the manifest lists: damaged or altered."""


class FormatError(ReleaseError):
    """Not a release, or one that breaks the rules of the format."""


class SchemaVersionError(ReleaseError):
    """Written for a newer Locum than this one."""


class CheckpointError(LocumError):
    """A checkpoint belongs to another fit, or is damaged."""


class PrivacyError(LocumError):
    """The request would break a privacy guarantee. Never downgraded to a warning."""


class PolicyError(LocumError):
    """A policy that the user set is not met: nothing is written."""

    exit_code = 3
