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
# Of features. Even names of 200 characters leave room for the rest of a manifest.
MOST_NAMES = 4096

TensorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,80}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,60}(\.[A-Za-z0-9]{1,12}){1,2}$")]
ShortText = Annotated[str, Field(max_length=200)]
Label = Annotated[int, Field(strict=True)] | ShortText
# In which space released vectors live; see `to_space`.
Space = Literal["raw", "unit"]
SPACES: tuple[str, ...] = get_args(Space)


class Strict(BaseModel):
    """A document that refuses unknown keys, NaN and infinity, and cannot be changed.

    Examples
    --------
    >>> from pydantic import ValidationError
    >>> from locum.release import FileEntry, Strict
    >>> issubclass(FileEntry, Strict)
    True
    >>> try:
    ...     FileEntry(sha256="0" * 64, bytes=1, owner="me")
    ... except ValidationError as error:
    ...     error.errors()[0]["type"]
    'extra_forbidden'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Linear(Strict):
    """A linear layer: `x @ weight.T + bias`.

    Parameters
    ----------
    op
        Always "linear".
    weight
        Name of the tensor of shape (outputs, inputs).
    bias
        Name of the tensor of shape (outputs,).

    Examples
    --------
    >>> from locum.release import Linear
    >>> Linear(weight="0.weight", bias="0.bias").op
    'linear'
    """

    op: Literal["linear"] = "linear"
    weight: TensorName
    bias: TensorName


class Activation(Strict):
    """An elementwise function.

    Parameters
    ----------
    op
        "relu" or "sigmoid".

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import Activation, run_program
    >>> run_program([Activation(op="sigmoid")], {}, np.zeros((1, 2))).tolist()
    [[0.5, 0.5]]
    """

    op: Literal["relu", "sigmoid"]


SimpleOp = Annotated[Linear | Activation, Field(discriminator="op")]


class Residual(Strict):
    """A residual block: `body(x) + shortcut(x)`.

    Parameters
    ----------
    op
        Always "residual".
    body
        1 to 16 operations.
    shortcut
        Up to 4 operations; empty: x itself.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import Activation, Residual, run_program
    >>> run_program([Residual(body=(Activation(op="relu"),))], {}, np.array([[-1.0, 2.0]])).tolist()
    [[-1.0, 4.0]]
    """

    op: Literal["residual"] = "residual"
    body: Annotated[tuple[SimpleOp, ...], Field(min_length=1, max_length=16)]
    shortcut: Annotated[tuple[SimpleOp, ...], Field(max_length=4)] = ()


Op = Annotated[Linear | Activation | Residual, Field(discriminator="op")]


class NetworkSpec(Strict):
    """A decoder network: latent noise and a one-hot condition in, a vector out.

    The output is `offset + span * network(...)`, plus residual noise where `noise` says so. These are tensors of the
    release; `offset` has one row for all classes or one for each.

    Parameters
    ----------
    kind
        Always "network".
    latent_dim
        Number of latents.
    conditional
        Whether the one-hot class and conditions are inputs too, after the latents.
    program
        The operations of the network, in their order.
    noise
        Residual noise: "none", "diagonal" (tensor `noise_scale`) or "low-rank" (also `noise_factor`).
    variance
        The default variance of the latents when sampling.
    variance_as_std
        Whether latents are multiplied by the variance instead of its root, as the authors' code does (fault F2 of the
        replica paper).

    Examples
    --------
    >>> from locum.release import Linear, NetworkSpec
    >>> spec = NetworkSpec(latent_dim=8, program=(Linear(weight="0.weight", bias="0.bias"),))
    >>> spec.variance, spec.noise
    (1.0, 'none')
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
    the products of two features. Each part was multiplied by the root of its entry in `shares`. Sums that were
    whitened by the same reference can be added.

    Parameters
    ----------
    noise
        Standard deviation of the normal noise in each number.
    shares
        Shares of sums, counts, lengths and products in the query; they sum to 1, and only the last may be 0.
    reference
        Name of the public reference statistics that whitened the vectors.
    reference_sha256
        SHA-256 of these statistics.

    Examples
    --------
    >>> from locum.release import StatisticsSpec
    >>> spec = StatisticsSpec(noise=4.0, shares=(0.8, 0.1, 0.1, 0), reference="plain", reference_sha256="0" * 64)
    >>> spec.size(classes=3, d=5)  # 3 * 5 sums, 3 counts, 1 sum of lengths
    19
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


class HeadSpec(Strict):
    """How to read the tensor `transcript`: the noisy results from which a private linear head was learned.

    They are, in this order: the pooled sum of all vectors, the counts per class and the sum of lengths; the sums per
    class; and one gradient per step. The class means of the Gaussian are placed so that its own Bayes rule is the
    head, `sharpness` times sharper.

    Parameters
    ----------
    noise
        Noise multiplier of one sum with all of the precision.
    start, steps, learning_rate, momentum, decay, clip, scale, averaged
        The schedule; see `locum.generate.private.Schedule`.
    separation
        How far class means were placed from their center, in standard deviations.
    sharpness
        How many times sharper the Gaussian's Bayes rule is than the head.
    reference
        Name of the public reference statistics that whitened the vectors.
    reference_sha256
        SHA-256 of these statistics.

    Examples
    --------
    >>> from locum.release import HeadSpec
    >>> schedule = dict(start=0.1, steps=8, learning_rate=9.0, momentum=0.7, decay=0, clip=1, scale=10, averaged=0.1)
    >>> placed = dict(separation=4.0, sharpness=3.0, reference="none", reference_sha256="0" * 64)
    >>> spec = HeadSpec(noise=4.0, **schedule, **placed)
    >>> spec.size(classes=3, d=5)  # 5 + 3 + 1 in the first query, and 3 * 5 in each of the nine others
    144
    """

    noise: Annotated[float, Field(gt=0, le=1e9)]
    start: Annotated[float, Field(gt=0, le=0.88)]
    steps: Annotated[int, Field(ge=0, le=1000)]
    learning_rate: Annotated[float, Field(ge=0, le=1e9)]
    momentum: Annotated[float, Field(ge=0, lt=1)]
    decay: Annotated[float, Field(ge=0, lt=1)]
    clip: Annotated[float, Field(gt=0, le=2)]
    scale: Annotated[float, Field(ge=0, le=1e9)]
    averaged: Annotated[float, Field(gt=0, le=1)]
    separation: Annotated[float, Field(gt=0, le=100)]
    sharpness: Annotated[float, Field(gt=0, le=1e6)]
    reference: ShortText
    reference_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        if self.steps and self.start >= 0.88:
            raise ValueError("`start` leaves no precision for the steps")
        return self

    def size(self, classes: int, d: int) -> int:
        """Length of the tensor."""
        return d + classes + 1 + (1 + self.steps) * classes * d


class GaussianSpec(Strict):
    """One mean per class and one shared covariance: `factor.T @ factor + diag(scale ** 2)`.

    With conditions there is one mean per combination of class and conditions; see `cell_of`.

    A Gaussian that was fitted under differential privacy may carry its noisy sums: those of several sites can be
    added and turned into one Gaussian. Or it carries the noisy results of a private head, which cannot be added.

    Parameters
    ----------
    kind
        Always "gaussian".
    variance
        The default sampling variance, as a factor of the covariance.
    statistics
        How to read the noisy sums; None: the release has none.
    head
        How to read the noisy results of a private head; None: the release has none.

    Examples
    --------
    >>> from locum.release import GaussianSpec
    >>> GaussianSpec().model_dump()
    {'kind': 'gaussian', 'variance': 1.0}
    """

    kind: Literal["gaussian"] = "gaussian"
    variance: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    statistics: StatisticsSpec | None = None
    head: HeadSpec | None = None

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what there is none of."""
        out: dict[str, Any] = handler(self)
        return {name: value for name, value in out.items() if value is not None}


class MixturePart(Strict):
    """One decoder of a mixture; its tensors have a prefix in the file, such as `part0.means`.

    Parameters
    ----------
    decoder
        A network or a Gaussian.
    order
        For each class of the release, its index in the part's own list of classes; empty: the two lists agree.

    Examples
    --------
    >>> from locum.release import GaussianSpec, MixturePart
    >>> MixturePart(decoder=GaussianSpec(), order=(1, 0)).order
    (1, 0)
    """

    decoder: Annotated[NetworkSpec | GaussianSpec, Field(discriminator="kind")]
    order: tuple[Annotated[int, Field(ge=0)], ...] = ()


class MixtureSpec(Strict):
    """Several decoders: each vector comes from one of them, drawn by the weights of its class.

    The tensor `weights` has a row per part and a column per class; columns sum to 1.

    Parameters
    ----------
    kind
        Always "mixture".
    parts
        Two or more decoders with one sampling variance.

    Examples
    --------
    >>> from locum.release import GaussianSpec, MixturePart, MixtureSpec
    >>> part = MixturePart(decoder=GaussianSpec(variance=0.5))
    >>> MixtureSpec(parts=(part, part)).variance
    0.5
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
    """The released vectors themselves, drawn without replacement.

    Parameters
    ----------
    kind
        Always "rows".

    Examples
    --------
    >>> from locum.release import RowsSpec
    >>> RowsSpec().kind
    'rows'
    """

    kind: Literal["rows"] = "rows"


class Condition(Strict):
    """An attribute besides the label, with the values it can take.

    Parameters
    ----------
    name
        Name of the attribute; it is public.
    values
        Up to 1000 values.

    Examples
    --------
    >>> from locum.release import Condition
    >>> Condition(name="sex", values=("female", "male")).values
    ('female', 'male')
    """

    name: ShortText
    values: Annotated[tuple[ShortText, ...], Field(min_length=1, max_length=1000)]


class EmbeddingEntry(Strict):
    """The backbone and preprocessing that a receiver's own vectors must come from.

    Parameters
    ----------
    backbone
        Name of the model that made the vectors.
    revision
        Its version; empty: not known.
    preprocessing
        Hash of the preprocessing; empty: not known.
    dim
        Number of features.
    feature_names
        One name per feature, if the generator was fitted on a table with column names; empty: they have none.

    Examples
    --------
    >>> from locum.release import EmbeddingEntry
    >>> EmbeddingEntry(backbone="efflite0", dim=1280).info(("cat", "dog")).class_names
    ('cat', 'dog')
    >>> EmbeddingEntry(backbone="none", dim=2, feature_names=("age", "weight")).columns
    ('age', 'weight')
    """

    backbone: ShortText
    revision: ShortText = ""
    preprocessing: ShortText = ""
    dim: Annotated[int, Field(ge=1, le=10**6)]
    feature_names: Annotated[tuple[ShortText, ...], Field(max_length=MOST_NAMES)] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = self.feature_names
        if names and (len(names) != self.dim or len(set(names)) != len(names)):
            raise ValueError("feature names must differ, and each feature must have one")
        return self

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out names where there are none: most vectors have no names for their features."""
        out: dict[str, Any] = handler(self)
        return out if self.feature_names else {k: v for k, v in out.items() if k != "feature_names"}

    @property
    def columns(self) -> tuple[str, ...]:
        """A name for each feature: its own, or else x0, x1 and so on, as in the files that `sample` writes."""
        return self.feature_names or tuple(f"x{i}" for i in range(self.dim))

    def info(self, class_names: tuple[str, ...]) -> EmbeddingInfo:
        """The same as an `EmbeddingInfo`."""
        return EmbeddingInfo(self.backbone, self.revision, self.preprocessing, class_names)


class FileEntry(Strict):
    """Hash and size of a released file.

    Parameters
    ----------
    sha256
        64 hexadecimal digits, in lower case.
    bytes
        Size of the file.

    Examples
    --------
    >>> from locum.release import FileEntry, entry_of
    >>> entry_of(b"") == FileEntry(sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", bytes=0)
    True
    """

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]


class Document(Strict):
    """What a release, or a head that was trained on one, says about itself: `parse_document` reads it.

    A subclass sets `format` and `schema_version`, each with its only value as the default.

    Parameters
    ----------
    written_by
        Name and version of the program.
    settings
        Public settings of the generator or head.
    embedding
        The backbone and preprocessing of the vectors.
    classes
        The labels, all different.
    class_names
        One name per class.
    space
        The space of the vectors: "raw" or "unit".
    claim
        What is guaranteed, and what is not.

    Examples
    --------
    >>> from locum.release import Document, Manifest
    >>> issubclass(Manifest, Document)
    True
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

    Parameters
    ----------
    written_by
        Name and version of the program.
    settings
        Public settings of the generator.
    embedding
        The backbone and preprocessing of the vectors.
    classes
        The labels that `sample` returns, all different.
    class_names
        One name per class.
    space
        The space of the vectors: "raw" or "unit".
    claim
        What the release guarantees, and what it does not.
    format
        Always "locum-release".
    schema_version
        Always 1.
    kind
        "decoder" (vectors are drawn) or "data" (a fixed table).
    generator
        Name of the generator.
    conditions
        Attributes besides the label.
    joint
        The probability of each combination (class, then each condition) that occurs, as indices into `classes` and
        `conditions`. Rounded to three digits: exact frequencies would reveal the number of records.
    decoder
        How to read the tensors.
    files
        Hash and size of each other file in the folder; filled in when the release is saved.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> manifest = ClassGaussian().fit(np.eye(5), [0, 0, 0, 1, 1]).release(no_dp=True).manifest
    >>> manifest.generator, manifest.kind, manifest.joint
    ('ClassGaussian', 'decoder', (((0,), 0.6), ((1,), 0.4)))
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
        widths = self.widths
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
    def widths(self) -> tuple[int, ...]:
        """The number of classes, then the number of values of each condition."""
        return (len(self.classes), *(len(c.values) for c in self.conditions))

    @property
    def cells(self) -> int:
        """The number of combinations of class and conditions, whether or not they occur."""
        return math.prod(self.widths)


def parse_manifest(raw: bytes) -> Manifest:
    """Read and check the manifest of a release.

    Parameters
    ----------
    raw
        The bytes of `manifest.json`.

    Returns
    -------
    Manifest
        The manifest, with every rule of the format checked.

    Raises
    ------
    FormatError
        If it breaks the rules; the text says where, in one sentence.
    SchemaVersionError
        If it was written for a newer Locum.

    Examples
    --------
    >>> from locum.release import parse_manifest
    >>> parse_manifest(b"{}")
    Traceback (most recent call last):
        ...
    locum.errors.FormatError: manifest.json does not describe a Locum release.
    """
    return parse_document(raw, Manifest, "manifest.json", "release")


def parse_document(raw: bytes, model: type[AnyModel], file: str, thing: str) -> AnyModel:
    """Read and check a JSON document that has a format and a schema version.

    Parameters
    ----------
    raw
        The bytes of the document.
    model
        The pydantic model; its fields `format` and `schema_version` have their only value as the default.
    file
        What errors call the file.
    thing
        What errors call what it describes.

    Returns
    -------
    instance of `model`
        The document, checked.

    Raises
    ------
    FormatError
        If it breaks the rules; the text says where, in one sentence.
    SchemaVersionError
        If it was written for a newer Locum.

    Examples
    --------
    >>> from locum.release import Manifest, parse_document
    >>> parse_document(b'{"format": "locum-release", "schema_version": 2}', Manifest, "manifest.json", "release")
    Traceback (most recent call last):
        ...
    locum.errors.SchemaVersionError: This release has schema version 2; this Locum reads up to 1. Upgrade Locum.
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
    """Place and kind of the first fault; never the value found there, which may be private.

    Parameters
    ----------
    error
        What pydantic raised.

    Returns
    -------
    place : str
        Path to the field, with dots.
    fault : str
        What is wrong there.

    Examples
    --------
    >>> from pydantic import ValidationError
    >>> from locum.release import FileEntry, first_fault
    >>> try:
    ...     FileEntry(sha256="0" * 64, bytes=-1)
    ... except ValidationError as error:
    ...     first_fault(error)
    ('bytes', 'Input should be greater than or equal to 0')
    """
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

    Parameters
    ----------
    X
        Vectors of shape (n, d).
    space
        "raw" or "unit".

    Returns
    -------
    ndarray of shape (n, d)
        For "raw", `X` itself.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import to_space
    >>> to_space(np.array([[3.0, 4.0]]), "unit").tolist()
    [[0.6, 0.8]]
    """
    if space not in SPACES:
        raise ConfigError(f"`space` must be one of {', '.join(SPACES)}; got {space!r}.")
    if space == "raw":
        return X
    out: npt.NDArray[np.float32] = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-12))
    return out
