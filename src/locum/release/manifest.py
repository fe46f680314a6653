"""The space in which released vectors live. Whatever mixes them with real ones goes through here."""

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


class Strict(BaseModel):
    """Nothing that is not written down here, and no number that is none."""

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
    `variance_as_std` is the authors' reading of "variance" (fault F2 of the seeds).
    """

    kind: Literal["network"] = "network"
    latent_dim: Annotated[int, Field(ge=1, le=65536)]
    conditional: bool = True
    program: Annotated[tuple[Op, ...], Field(min_length=1, max_length=64)]
    noise: Literal["none", "diagonal", "low-rank"] = "none"
    variance: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    variance_as_std: bool = False


class StatisticsSpec(Strict):
    """How to read the tensor `statistics`: the noisy sums that were paid for, as they left the mechanism.

    They are, one after the other: the sums of each class, its count, the sum of lengths and, if they have a share,
    the products of two features. Each part was multiplied by the root of its entry in `shares`, and each number has
    normal noise of standard deviation `noise`. Sums that were whitened by the same `reference` can be added.
    """

    noise: Annotated[float, Field(gt=0, le=1e9)]
    shares: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=4, max_length=4)]
    reference: ShortText
    reference_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if not math.isclose(sum(self.shares), 1.0, abs_tol=1e-9) or not all(self.shares[:3]):
            raise ValueError("the shares of sums, counts and lengths must be above 0, and all shares sum to 1")
        return self

    def size(self, classes: int, d: int) -> int:
        """How many numbers there are."""
        return classes * d + classes + 1 + (d * (d + 1) // 2 if self.shares[3] else 0)


class GaussianSpec(Strict):
    """One mean a class and one covariance for all: `factor.T @ factor + diag(scale ** 2)`.

    Where it was fitted under differential privacy, the noisy sums behind it may come along (`statistics`): those of
    several sites are added, and read once.
    """

    kind: Literal["gaussian"] = "gaussian"
    variance: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    statistics: StatisticsSpec | None = None

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `statistics` where there are none: such a release stays as it always was."""
        out: dict[str, Any] = handler(self)
        if self.statistics is None:
            del out["statistics"]
        return out


class MixturePart(Strict):
    """One decoder of a mixture; in the file its tensors have a prefix, as `part0.means`.

    `order` gives, for each class of the release, its place among the classes as the part knows them; empty, where
    that is the same.
    """

    decoder: Annotated[NetworkSpec | GaussianSpec, Field(discriminator="kind")]
    order: tuple[Annotated[int, Field(ge=0)], ...] = ()


class MixtureSpec(Strict):
    """Several decoders: each vector comes from one of them, drawn by the weights of its class.

    The tensor `weights` has a row for each part and a column for each class; columns sum to 1.
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
    """A further attribute beside the label, with the values it can take."""

    name: ShortText
    values: Annotated[tuple[ShortText, ...], Field(min_length=1, max_length=1000)]


class EmbeddingEntry(Strict):
    """Which vectors a receiver must bring: those of this backbone, prepared in this way."""

    backbone: ShortText
    revision: ShortText = ""
    preprocessing: ShortText = ""
    dim: Annotated[int, Field(ge=1, le=10**6)]

    def info(self, class_names: tuple[str, ...]) -> EmbeddingInfo:
        """The same facts as the rest of the toolkit knows them."""
        return EmbeddingInfo(self.backbone, self.revision, self.preprocessing, class_names)


class DPEntry(Strict):
    """The numbers of differential privacy, as the holder's ledger computed them; `DPClaim` checks them."""

    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    relation: Literal["add-or-remove", "replace-one"]
    events: Annotated[tuple[dict[ShortText, int | float | ShortText], ...], Field(min_length=1, max_length=1000)]
    ledger: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ClaimEntry(Strict):
    """The promise; `PrivacyClaim` checks that it hangs together."""

    kind: Literal["none", "k-anonymity", "dp"]
    k: Annotated[int, Field(ge=2)] | None = None
    unit: Literal["record", "subject"] = "record"
    not_covered: Annotated[tuple[Annotated[str, Field(max_length=2000)], ...], Field(min_length=1, max_length=100)]
    dp: DPEntry | None = None

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `dp` where there is none: it says something only where it is."""
        out: dict[str, Any] = handler(self)
        if self.dp is None:
            del out["dp"]
        return out

    def claim(self) -> PrivacyClaim:
        """As the core type."""
        return PrivacyClaim.from_dict(self.model_dump())


class FileEntry(Strict):
    """A released file's fingerprint."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]


class Document(Strict):
    """What a release, and whatever is made from one alone, says about itself: `parse_document` reads it.

    A subclass gives `format` and `schema_version`, each with its one value as the default.
    """

    written_by: ShortText
    settings: dict[str, Any]
    embedding: EmbeddingEntry
    classes: Annotated[tuple[Label, ...], Field(min_length=1, max_length=100_000)]
    class_names: tuple[ShortText, ...]
    space: Space
    claim: ClaimEntry

    @model_validator(mode="after")
    def _classes_have_names(self) -> Self:
        if len(set(self.classes)) != len(self.classes) or len(self.class_names) != len(self.classes):
            raise ValueError("classes must differ and each must have a name")
        return self

    def dumps(self) -> str:
        """Stable text: the same facts give the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True, allow_nan=False) + "\n"


AnyDocument = TypeVar("AnyDocument", bound=Document)
AnyModel = TypeVar("AnyModel", bound=BaseModel)


class Manifest(Document):
    """All that a release says about itself.

    `joint` is the probability of each combination (class, then each condition) that occurs, as
    indices into `classes` and `conditions`. Probabilities are rounded to three digits: exact
    frequencies would give the number of records away.
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
    def _hangs_together(self) -> Self:
        widths = (len(self.classes), *(len(c.values) for c in self.conditions))
        for codes, p in self.joint:
            if len(codes) != len(widths) or any(not 0 <= c < w for c, w in zip(codes, widths, strict=True)):
                raise ValueError("a combination in `joint` points outside the classes or conditions")
            if not 0 <= p <= 1:
                raise ValueError("a probability in `joint` lies outside 0..1")
        if not math.isclose(sum(p for _, p in self.joint), 1.0, abs_tol=1e-6):
            raise ValueError("the probabilities in `joint` do not sum to 1")
        if (self.decoder.kind == "rows") != (self.kind == "data"):
            raise ValueError("a release of kind 'data' holds rows, and only that")
        if isinstance(self.decoder, MixtureSpec):
            self._check_mixture(self.decoder)
        return self

    def _check_mixture(self, decoder: MixtureSpec) -> None:
        if self.conditions or self.space != "raw":
            raise ValueError("a mixture has no conditions, and its space is 'raw'")
        for part in decoder.parts:
            if part.order and sorted(part.order) != list(range(len(self.classes))):
                raise ValueError("the order of a part must name the place of each class once")

    @property
    def condition_width(self) -> int:
        """Length of the one-hot condition: classes, then each condition."""
        return len(self.classes) + sum(len(c.values) for c in self.conditions)


def parse_manifest(raw: bytes) -> Manifest:
    """A checked manifest, or one sentence that says why not."""
    return parse_document(raw, Manifest, "manifest.json", "release")


def parse_document(raw: bytes, model: type[AnyDocument], file: str, thing: str) -> AnyDocument:
    """A checked document, or one sentence that says why not; `file` and `thing` are its words for what was read."""
    document = parse_model(raw, model, file, thing)
    try:
        document.claim.claim()
    except PrivacyError as error:
        raise FormatError(f"{file} makes an impossible claim: {error}") from error
    return document


def parse_model(raw: bytes, model: type[AnyModel], file: str, thing: str) -> AnyModel:
    """The same for whatever has a `format` and a `schema_version`, and perhaps no claim."""
    fields = model.model_fields
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise FormatError(f"{file} is not valid JSON: the {thing} is damaged; ask for it again.") from error
    if not isinstance(data, dict) or data.get("format") != fields["format"].default:
        raise FormatError(f"{file} does not describe an Locum {thing}.")
    version, known = data.get("schema_version"), fields["schema_version"].default
    if isinstance(version, int) and version > known:
        raise SchemaVersionError(
            f"This {thing} has schema version {version}; this Locum reads up to {known}. Upgrade it."
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        place, fault = first_fault(error)
        raise FormatError(f"{file} breaks the format at {(place or thing)[:120]!r}: {fault[:200]}.") from error


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Where a document breaks its form first, and how; never what stood there, which may be private."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(str(p) for p in first["loc"]), first["msg"]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


Space = Literal["raw", "unit"]
SPACES: tuple[str, ...] = get_args(Space)


def to_space(X: npt.NDArray[np.float32], space: str) -> npt.NDArray[np.float32]:
    """Vectors as they are ("raw"), or scaled to length 1 ("unit"); a zero vector stays zero.

    >>> to_space(np.array([[3.0, 4.0]], dtype=np.float32), "unit").tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    if space not in SPACES:
        raise ConfigError(f"`space` must be one of {', '.join(SPACES)}; got {space!r}.")
    if space == "raw":
        return X
    out: npt.NDArray[np.float32] = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-12))
    return out
