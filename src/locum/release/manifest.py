"""What a release says about itself: the schema of `manifest.json`, and how such documents are read."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from locum.errors import ConfigError, FormatError, PrivacyError, SchemaVersionError
from locum.types import EmbeddingInfo, PrivacyClaim

MAX_MANIFEST_BYTES = 4 * 2**20

TensorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,80}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,60}(\.[A-Za-z0-9]{1,12}){1,2}$")]
ShortText = Annotated[str, Field(max_length=200)]
Label = Annotated[int, Field(strict=True)] | ShortText
# In which space released vectors live; see `to_space`.
Space = Literal["raw", "unit"]
SPACES: tuple[str, ...] = get_args(Space)


class Strict(BaseModel):
    """Refuses unknown keys, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Linear(Strict):
    """`x @ weight.T + bias`."""

    op: Literal["linear"] = "linear"
    weight: TensorName
    bias: TensorName


class Activation(Strict):
    """An elementwise function."""

    op: Literal["relu", "sigmoid"]


SimpleOp = Annotated[Linear | Activation, Field(discriminator="op")]


class Residual(Strict):
    """`body(x) + shortcut(x)`; an empty shortcut is x itself."""

    op: Literal["residual"] = "residual"
    body: Annotated[tuple[SimpleOp, ...], Field(min_length=1, max_length=16)]
    shortcut: Annotated[tuple[SimpleOp, ...], Field(max_length=4)] = ()


Op = Annotated[Linear | Activation | Residual, Field(discriminator="op")]


class NetworkSpec(Strict):
    """A decoder network: latent noise and a one-hot condition in, a vector out.

    The output is `offset + span * network(...)`, plus residual noise where `noise` says so; `offset` has one
    row for all classes or one for each.
    `variance_as_std` is how the authors' code reads "variance" (fault F2 of the replica paper).
    """

    kind: Literal["network"] = "network"
    latent_dim: Annotated[int, Field(ge=1, le=65536)]
    conditional: bool = True
    program: Annotated[tuple[Op, ...], Field(min_length=1, max_length=64)]
    noise: Literal["none", "diagonal", "low-rank"] = "none"
    variance: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    variance_as_std: bool = False


class StatisticsSpec(Strict):
    """How to read the tensor `statistics`: the noisy sums that were paid for, as the mechanism returned them.

    They are, in this order: the sums per class, the counts per class, the sum of lengths and, if they have a share,
    the products of two features. Each part was multiplied by the root of its entry in `shares`, and each number has
    normal noise of standard deviation `noise`. Sums that were whitened by the same `reference` can be added.
    """

    noise: Annotated[float, Field(gt=0, le=1e9)]
    shares: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=4, max_length=4)]
    reference: ShortText
    reference_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if not math.isclose(sum(self.shares), 1.0, abs_tol=1e-9) or not all(self.shares[:3]):
            raise ValueError("the shares of sums, counts and lengths must be above 0, and all shares sum to 1")
        return self

    def size(self, classes: int, d: int) -> int:
        """Length of the tensor."""
        return classes * d + classes + 1 + (d * (d + 1) // 2 if self.shares[3] else 0)


class GaussianSpec(Strict):
    """One mean per class and one shared covariance: `factor.T @ factor + diag(scale ** 2)`.

    A Gaussian that was fitted under differential privacy may carry its noisy sums (`statistics`): those of several
    sites can be added and turned into one Gaussian.
    """

    kind: Literal["gaussian"] = "gaussian"
    variance: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    statistics: StatisticsSpec | None = None

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `statistics` where there are none."""
        out: dict[str, Any] = handler(self)
        if self.statistics is None:
            del out["statistics"]
        return out


class MixturePart(Strict):
    """One decoder of a mixture; its tensors have a prefix in the file, such as `part0.means`.

    `order` gives, for each class of the release, its index in the part's own list of classes; it is empty if the two
    lists agree.
    """

    decoder: Annotated[NetworkSpec | GaussianSpec, Field(discriminator="kind")]
    order: tuple[Annotated[int, Field(ge=0)], ...] = ()


class MixtureSpec(Strict):
    """Several decoders: each vector comes from one of them, drawn by the weights of its class.

    The tensor `weights` has a row per part and a column per class; columns sum to 1.
    """

    kind: Literal["mixture"] = "mixture"
    parts: Annotated[tuple[MixturePart, ...], Field(min_length=2, max_length=1000)]

    @model_validator(mode="after")
    def _one_variance(self) -> Self:
        if len({part.decoder.variance for part in self.parts}) > 1:
            raise ValueError("the parts of a mixture must have one sampling variance")
        return self

    @property
    def variance(self) -> float:
        """The sampling variance that all parts share."""
        return self.parts[0].decoder.variance


class RowsSpec(Strict):
    """The released vectors themselves, drawn without replacement."""

    kind: Literal["rows"] = "rows"


class Condition(Strict):
    """An attribute besides the label, with the values it can take."""

    name: ShortText
    values: Annotated[tuple[ShortText, ...], Field(min_length=1, max_length=1000)]


class EmbeddingEntry(Strict):
    """The backbone and preprocessing that a receiver's own vectors must come from."""

    backbone: ShortText
    revision: ShortText = ""
    preprocessing: ShortText = ""
    dim: Annotated[int, Field(ge=1, le=10**6)]

    def info(self, class_names: tuple[str, ...]) -> EmbeddingInfo:
        """The same as an `EmbeddingInfo`."""
        return EmbeddingInfo(self.backbone, self.revision, self.preprocessing, class_names)


class FileEntry(Strict):
    """Hash and size of a released file."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]


class Document(Strict):
    """What a release, or a head that was trained on one, says about itself: `parse_document` reads it.

    A subclass sets `format` and `schema_version`, each with its only value as the default.
    """

    written_by: ShortText
    settings: dict[str, Any]
    embedding: EmbeddingEntry
    classes: Annotated[tuple[Label, ...], Field(min_length=1, max_length=100_000)]
    class_names: tuple[ShortText, ...]
    space: Space
    claim: PrivacyClaim

    @model_validator(mode="after")
    def _classes_have_names(self) -> Self:
        if len(set(self.classes)) != len(self.classes) or len(self.class_names) != len(self.classes):
            raise ValueError("classes must differ and each must have a name")
        return self

    def dumps(self) -> str:
        """Stable text: the same facts give the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True, allow_nan=False) + "\n"


AnyModel = TypeVar("AnyModel", bound=BaseModel)


class Manifest(Document):
    """The manifest of a release.

    `joint` is the probability of each combination (class, then each condition) that occurs, as indices into `classes`
    and `conditions`. Probabilities are rounded to three digits: exact frequencies would reveal the number of records.
    """

    format: Literal["locum-release"] = "locum-release"
    schema_version: Literal[1] = 1
    kind: Literal["decoder", "data"]
    generator: ShortText
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    joint: Annotated[tuple[tuple[tuple[int, ...], float], ...], Field(min_length=1)]
    decoder: Annotated[NetworkSpec | GaussianSpec | MixtureSpec | RowsSpec, Field(discriminator="kind")]
    files: dict[FileName, FileEntry] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        widths = (len(self.classes), *(len(c.values) for c in self.conditions))
        for codes, p in self.joint:
            if len(codes) != len(widths) or any(not 0 <= c < w for c, w in zip(codes, widths, strict=True)):
                raise ValueError("a combination in `joint` points outside the classes or conditions")
            if not 0 <= p <= 1:
                raise ValueError("a probability in `joint` lies outside 0..1")
        if not math.isclose(sum(p for _, p in self.joint), 1.0, abs_tol=1e-6):
            raise ValueError("the probabilities in `joint` do not sum to 1")
        if (self.decoder.kind == "rows") != (self.kind == "data"):
            raise ValueError("a release of kind 'data' holds rows, and no other kind does")
        if isinstance(self.decoder, MixtureSpec):
            self._check_mixture(self.decoder)
        return self

    def _check_mixture(self, decoder: MixtureSpec) -> None:
        if self.conditions or self.space != "raw":
            raise ValueError("a mixture has no conditions, and its space is 'raw'")
        for part in decoder.parts:
            if part.order and sorted(part.order) != list(range(len(self.classes))):
                raise ValueError("the order of a part must give the index of each class once")

    @property
    def condition_width(self) -> int:
        """Length of the one-hot condition: classes, then each condition."""
        return len(self.classes) + sum(len(c.values) for c in self.conditions)


def parse_manifest(raw: bytes) -> Manifest:
    """The manifest in `raw`, checked; a FormatError in one sentence if it breaks the rules."""
    return parse_document(raw, Manifest, "manifest.json", "release")


def parse_document(raw: bytes, model: type[AnyModel], file: str, thing: str) -> AnyModel:
    """The document in `raw`, checked; a FormatError in one sentence if it breaks the rules.

    `model` has a `format` and a `schema_version`; `file` and `thing` are what the error calls the document.
    """
    fields = model.model_fields
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise FormatError(f"{file} is not valid JSON: the {thing} is damaged; ask for it again.") from error
    if not isinstance(data, dict) or data.get("format") != fields["format"].default:
        raise FormatError(f"{file} does not describe a Locum {thing}.")
    version, known = data.get("schema_version"), fields["schema_version"].default
    if isinstance(version, int) and version > known:
        raise SchemaVersionError(
            f"This {thing} has schema version {version}; this Locum reads up to {known}. Upgrade Locum."
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        place, fault = first_fault(error)
        raise FormatError(f"{file} breaks the format at {(place or thing)[:120]!r}: {fault[:200]}.") from error
    except PrivacyError as error:
        raise FormatError(f"{file} makes an impossible claim: {str(error)[:300]}") from error


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Place and kind of the first fault; never the value found there, which may be private."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(str(p) for p in first["loc"]), first["msg"]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def to_space(X: npt.NDArray[np.float32], space: str) -> npt.NDArray[np.float32]:
    """Vectors as they are ("raw"), or scaled to length 1 ("unit"); a zero vector stays zero.

    Whatever mixes released and real vectors must bring both into one space.

    >>> to_space(np.array([[3.0, 4.0]], dtype=np.float32), "unit").tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    if space not in SPACES:
        raise ConfigError(f"`space` must be one of {', '.join(SPACES)}; got {space!r}.")
    if space == "raw":
        return X
    out: npt.NDArray[np.float32] = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-12))
    return out
