"""`export`: a release or a head for programs that do not know Locum, and a release for the Hugging Face hub."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, IntegrityError, PolicyError
from locum.generate.table import is_table
from locum.heads import SavedHead, head_to_onnx
from locum.io import MANIFEST, check_output_file, write_bytes
from locum.recipes.verify import verify_release
from locum.release import (
    Release,
    decode_given,
    decoder_to_onnx,
    entry_of,
    holder_refuses,
    hub_place,
    load,
    noise_width,
    open_release,
    push_files,
    put_release,
    read_archive,
    release_files,
)
from locum.types import PrivacyClaim

# Largest difference between onnxruntime and numpy, as a share of the largest number of the output.
TOLERANCE = 1e-6
_ROWS = 256


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What was exported, and how well it agrees.

    Attributes
    ----------
    file
        The .onnx file.
    kind
        "decoder" or "head".
    release
        Fingerprint of the release; None if a head does not know it.
    claim
        The claim, which is in the file too.
    inputs, outputs
        Names of the model's inputs and outputs.
    megabytes
        Size of the file.
    difference
        Largest difference between onnxruntime and numpy on 256 rows, divided by the largest number of the output;
        None if onnxruntime is not installed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import export_onnx
    >>> export_onnx(Path("release"), Path("decoder.onnx")).difference  # doctest: +SKIP
    """

    file: Path
    kind: str
    release: str | None
    claim: PrivacyClaim
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    megabytes: float
    difference: float | None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "file": str(self.file), "claim": self.claim.to_dict()}


def export_onnx(source: Path, out: Path, *, overwrite: bool = False) -> ExportSummary:
    """Write a release's decoder, or a head, as an ONNX file with its claim; torch is not needed.

    A release is checked as `verify_release` checks it; one that was refused is not exported. Where onnxruntime is
    installed the file is run, and is written only if it agrees with Locum. It holds nothing that the release does not
    hold; noisy sums and transcripts of a private fit are left out.

    Parameters
    ----------
    source
        Folder or .zip of a release with a decoder, or the file of a head.
    out
        The .onnx file.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    ExportSummary
        What was written, and the largest difference that was found.

    Raises
    ------
    ConfigError
        If it is a fixed table or a private table, which have no decoder.
    ReleaseError
        If it is not an intact release or head.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import export_onnx, fit_release
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-export"), no_dp=True).release
    >>> export_onnx(release, Path("tumors.onnx")).inputs
    ('noise', 'codes', 'variance')
    """
    check_output_file(out, overwrite=overwrite, suffixes=(".onnx",), release=source if source.is_dir() else None)
    if source.is_dir() or source.suffix.lower() == ".zip":
        release = _decoder(source)
        raw, kind, fingerprint, claim = decoder_to_onnx(release), "decoder", release.fingerprint, release.claim
        inputs: tuple[str, ...] = ("noise", "codes", "variance")
        if release.manifest.decoder.kind == "mixture":
            inputs = ("noise", "codes", "variance", "uniform")
        outputs: tuple[str, ...] = ("X",)
        difference = _compared(raw, lambda run: _decoder_gap(release, run))
    else:
        head = SavedHead.open(source)
        raw, kind, fingerprint, claim = head_to_onnx(head), "head", head.manifest.release, head.claim
        inputs, outputs = ("X",), ("probabilities", "code")
        difference = _compared(raw, lambda run: _head_gap(head, run))
    # Made to be shared, like the release.
    write_bytes(out, raw, mode=0o644)
    return ExportSummary(out, kind, fingerprint, claim, inputs, outputs, len(raw) / 1e6, difference)


def _decoder(source: Path) -> Release:
    """The release, checked."""
    if source.is_dir():
        if is_table(source):
            raise ConfigError(
                f"{str(source)!r} is a private table, whose columns are drawn one after the other: it has no decoder "
                "to export. Draw rows with `locum obfuscate sample`."
            )
        found = [verify_release(source)]
    else:
        found = []
        with tempfile.TemporaryDirectory(prefix="locum-") as place:
            contents = read_archive(source).contents
            put_release(contents, Path(place) / "release", check=lambda folder: found.append(verify_release(folder)))
    if found[0].refused and found[0].override is None:
        # An .onnx file has no passport, which would say so.
        raise PolicyError(
            f"{str(source)!r} must not leave: {found[0].decision} {found[0].audit} Nothing was written."
        )
    return load(source)


Runner = Callable[[dict[str, npt.NDArray[Any]]], list[npt.NDArray[Any]]]


def _compared(raw: bytes, gap: Callable[[Runner], float]) -> float | None:
    """The largest difference in onnxruntime; None if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    found = gap(lambda feed: session.run(None, feed))
    if not found <= TOLERANCE:
        raise ConfigError(
            f"onnxruntime and Locum differ by {found:.2g} of the largest number, more than {TOLERANCE:g}: nothing "
            "was written. Use the release itself, or another version of onnxruntime."
        )
    return found


def _decoder_gap(release: Release, run: Runner) -> float:
    manifest, rng = release.manifest, np.random.default_rng(0)
    joint = [codes for codes, _ in manifest.joint]
    codes = np.array([joint[i] for i in rng.integers(len(joint), size=_ROWS)], dtype=np.int64)
    noise = rng.standard_normal((_ROWS, noise_width(manifest, release.tensors)), dtype=np.float32)
    variance = np.array([manifest.decoder.variance], dtype=np.float32)  # type: ignore[union-attr]
    feed: dict[str, npt.NDArray[Any]] = {"noise": noise, "codes": codes, "variance": variance}
    uniform = None
    if manifest.decoder.kind == "mixture":
        uniform = feed["uniform"] = rng.random(_ROWS, dtype=np.float32)
    ours = decode_given(manifest, release.tensors, codes, noise, uniform=uniform)
    return _gap(run(feed)[0], ours)


def _head_gap(head: SavedHead, run: Runner) -> float:
    rng, d = np.random.default_rng(0), head.manifest.embedding.dim
    X = rng.standard_normal((_ROWS, d), dtype=np.float32) * rng.uniform(0.1, 10.0, d).astype(np.float32)
    return _gap(run({"X": X})[0], head.predict_proba(X))


def _gap(theirs: npt.NDArray[Any], ours: npt.NDArray[Any]) -> float:
    largest = max(float(np.abs(ours).max()), float(np.finfo(np.float32).tiny))
    return float(np.abs(theirs.astype(np.float64) - ours.astype(np.float64)).max()) / largest


def push_to_hub(
    release: Path, repo: str, *, public: bool = False, confirm: Callable[[str], object]
) -> dict[str, Any]:
    """Push a release to the Hugging Face hub: exactly its checked files, in one commit.

    A decoder becomes a model repository, a fixed table a dataset repository; private unless `public` is said. A
    release that its holder refused, or whose audit's policy is not met and was not overridden, is not pushed, nor
    is a test with an insecure seed. Files beside the release, such as reports, never are.

    Parameters
    ----------
    release
        Folder of the release.
    repo
        OWNER/NAME. It is made if it is not there.
    public
        Let everybody see it. It cannot be taken back: whoever downloaded it has it.
    confirm
        Called before anything is sent, with a sentence on who will see what. An exception from it leaves everything
        as it was.

    Returns
    -------
    dict
        `repo`, `kind` ("model" or "dataset"), `address` (for `locum.load`), `public`, `commit`, `files` and
        `fingerprint`.

    Raises
    ------
    ReleaseError
        If the folder is not an intact release.
    PolicyError
        If it must not leave.
    ConfigError
        If the repository has another visibility or holds other files, or there is no login.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import push_to_hub
    >>> push_to_hub(Path("release"), "clinic/scans", confirm=print)["address"]  # doctest: +SKIP
    'hf://clinic/scans'
    """
    if is_table(release):
        raise ConfigError(f"{str(release)!r} is a private table: only releases of vectors can be pushed to the hub.")
    found = verify_release(release)
    opened = open_release(release)
    place = hub_place(f"hf://{'datasets/' if opened.release.manifest.kind == 'data' else ''}{repo.strip()}")
    if place.revision is not None or place.folder:
        raise ConfigError(f"A release is pushed to a repository OWNER/NAME; got {repo!r}.")
    if holder_refuses(opened.passport_files.passport):
        raise PolicyError(f"{str(release)!r} was refused by its holder: {found.decision} Nothing was pushed.")
    if found.refused and found.override is None:
        raise PolicyError(f"{str(release)!r} must not leave: {found.audit} Nothing was pushed.")
    if found.claim.test:
        raise PolicyError(
            f"{str(release)!r} is a test with an insecure seed: anyone can draw its noise again and take it off. "
            "Nothing was pushed; fit it without `insecure_seed`."
        )
    contents = release_files(release)
    hashes = {name: entry_of(raw).sha256 for name, raw in contents.items()}
    if not {**opened.passport_files.hashes, MANIFEST: found.fingerprint}.items() <= hashes.items():
        raise IntegrityError(f"{str(release)!r} was replaced while it was checked: try again.")
    who = "everybody, for good: what was downloaded cannot be taken back" if public else "those you give access to"
    confirm(
        f"{len(contents)} files of the release {found.fingerprint[:12]} ({found.claim.title}) go to {place.kind} "
        f"{place.repo} on the Hugging Face hub. They will be seen by {who}."
    )
    commit = push_files(contents, place, public=public, message=f"Locum release {found.fingerprint[:12]}")
    return {
        "repo": place.repo,
        "kind": place.kind,
        "address": place.address,
        "public": public,
        "commit": commit,
        "files": sorted(contents),
        "fingerprint": found.fingerprint,
    }
