"""Keys of masked sums: what a site derives from its master secret, what it announces, and the streams of masks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, FormatError, PrivacyError
from locum.federated import secret_sharing
from locum.federated.mask_terms import HEAD, MaskTerms, canonical, digest

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise ConfigError("Masked sums need cryptography: pip install 'locum[federated]'.") from None

Words = npt.NDArray[np.uint64]

MASTER_BYTES = 32
_HEX32 = re.compile(r"[0-9a-f]{64}")
# A signature on the largest NIST curve has at most 139 bytes.
_SIGNATURE = re.compile(r"(?:[0-9a-f]{2}){8,160}")
_FIELD = 2**255 - 19
# The points of small order, on the curve and on its twist: an exchange with one of them is 0 for every private key.
_LOW_ORDER = frozenset(
    [
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        _FIELD - 1,
    ]
)


@dataclass(frozen=True)
class Announced:
    """One site's announcement after its form was checked."""

    site: str
    encryption: str
    masks: tuple[str, ...]
    commitments: tuple[str, ...]
    signature: str

    def body(self, terms: MaskTerms) -> dict[str, Any]:
        """What the site signs."""
        keys = {"encryption": self.encryption, "masks": list(self.masks), "commitments": list(self.commitments)}
        return {**_head(terms, self.site), **keys}

    def to_dict(self, terms: MaskTerms) -> dict[str, Any]:
        """The announcement as it is sent."""
        return {**self.body(terms), "signature": self.signature}


@dataclass(frozen=True)
class SiteKeys:
    """All secrets of one site in one run, derived from one master secret of 32 random bytes."""

    terms: MaskTerms
    site: str
    master: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.master, bytes) or len(self.master) != MASTER_BYTES:
            raise ConfigError("The master secret must be 32 random bytes: secrets.token_bytes(32).")
        if self.site not in self.terms.sites:
            raise ConfigError(f"{self.site!r} is not one of the federation's sites.")

    def encryption(self) -> bytes:
        """Private key with which shares are encrypted."""
        return self._derive("encryption key")

    def mask(self, step: int) -> bytes:
        """Private key for the pairwise masks of a step."""
        return self._derive("mask key", step=step)

    def self_mask(self, step: int) -> bytes:
        """Seed of the site's own mask of a step."""
        return self._derive("self mask", step=step)

    def shares(self, step: int, kind: str) -> dict[int, int]:
        """Shares of the self mask ("self") or of the mask key ("pair") of a step, for every pinned site.

        They depend on nothing but the master secret, so a second sharing cannot give a second polynomial away.
        """
        secret = self.self_mask(step) if kind == "self" else self.mask(step)
        length = secret_sharing.COEFFICIENT_BYTES * (self.terms.threshold - 1)
        randomness = _stream(self._derive("coefficients", step=step, kind=kind), length)
        return secret_sharing.split(secret, randomness, self.terms.holders.values())

    def announced(self) -> Announced:
        """The announcement, not yet signed."""
        steps = range(self.terms.steps)
        masks = tuple(public_key(self.mask(k)) for k in steps)
        commitments = tuple(commitment(self.self_mask(k)) for k in steps)
        return Announced(self.site, public_key(self.encryption()), masks, commitments, "")

    def _derive(self, use: str, **fields: Any) -> bytes:
        label = canonical(use, run=self.terms.run, terms=self.terms.terms, site=self.site, **fields)
        return _hkdf(self.master, label)


def announce(terms: MaskTerms, name: str, master: bytes, key: EllipticCurvePrivateKey) -> dict[str, Any]:
    """A site's announcement: its public keys and commitments for every step, signed with its pinned key.

    The same master secret gives the same announcement again, apart from the signature, which is random.

    Parameters
    ----------
    terms
        Public parameters of the run.
    name
        Name of the site.
    master
        32 random bytes (`secrets.token_bytes(32)`), made once for this run and kept private.
    key
        The site's private signing key.

    Returns
    -------
    dict
        For JSON: format, version, message, run, terms, parameters, site, encryption, masks, commitments, signature.

    Examples
    --------
    >>> import secrets
    >>> from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
    >>> from locum.federated.masking import MaskTerms, announce
    >>> keys = {name: generate_private_key(SECP384R1()) for name in ("a", "b", "c")}
    >>> public = {name: key.public_key() for name, key in keys.items()}
    >>> terms = MaskTerms("first", "00" * 32, public, absent=0, colluding=1, steps=2)
    >>> announcement = announce(terms, "a", secrets.token_bytes(32), keys["a"])
    >>> len(announcement["masks"]), len(announcement["commitments"])
    (2, 2)
    """
    announced = SiteKeys(terms, name, master).announced()
    check_own_key(terms, name, key)
    signature = sign(key, canonical(**announced.body(terms)))
    return {**announced.to_dict(terms), "signature": signature}


def check_own_key(terms: MaskTerms, name: str, key: EllipticCurvePrivateKey) -> None:
    """Refuse to sign with a key that the other sites would not accept."""
    if name not in terms.sites or key.public_key() != terms.sites[name]:
        raise ConfigError(f"The private key of {name!r} does not belong to its pinned public key.")


def read_announcement(terms: MaskTerms, name: str, announcement: Any) -> Announced:
    """An announcement of the right form (else FormatError) for this run (else PrivacyError), signed or not."""
    where = f"The announcement of {name!r}"
    if not isinstance(announcement, Mapping) or len(announcement) != 11:
        raise FormatError(f"{where} is not an announcement of masked sums.")
    for key, expected in _head(terms, name).items():
        value = announcement.get(key)
        if type(value) is not type(expected) or value != expected:
            raise PrivacyError(f"{where} is for another run, site or terms: its {key} differs.")
    masks: Any = announcement.get("masks")
    commitments: Any = announcement.get("commitments")
    encryption: Any = announcement.get("encryption")
    signature: Any = announcement.get("signature")
    for values in (masks, commitments):
        if not isinstance(values, list) or len(values) != terms.steps:
            raise FormatError(f"{where} must have one mask key and one commitment for each of {terms.steps} steps.")
    for value in (encryption, *masks, *commitments):
        if not isinstance(value, str) or not _HEX32.fullmatch(value):
            raise FormatError(f"{where} has a key or commitment that is not 32 bytes in lower-case hex.")
    for value in (encryption, *masks):
        # A second spelling of one point would pass for a second key.
        number = int.from_bytes(bytes.fromhex(value), "little")
        if number >= _FIELD or number in _LOW_ORDER:
            raise FormatError(f"{where} has a key that is not a valid X25519 key.")
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise FormatError(f"{where} has no readable signature.")
    return Announced(name, encryption, tuple(masks), tuple(commitments), signature)


def check_announcement(terms: MaskTerms, name: str, announcement: Mapping[str, Any]) -> None:
    """Refuse an announcement that does not come from the pinned site, or is not for this run.

    Parameters
    ----------
    terms
        Public parameters of the run.
    name
        The site that it should come from.
    announcement
        What arrived.

    Raises
    ------
    FormatError
        If it cannot be used; the text says why.

    Examples
    --------
    >>> from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
    >>> from locum.federated.masking import MaskTerms, announce, check_announcement
    >>> keys = {name: generate_private_key(SECP384R1()) for name in ("a", "b", "c")}
    >>> public = {name: key.public_key() for name, key in keys.items()}
    >>> terms = MaskTerms("first", "00" * 32, public, absent=0, colluding=1, steps=1)
    >>> check_announcement(terms, "a", announce(terms, "a", b"m" * 32, keys["a"]))
    >>> check_announcement(terms, "b", announce(terms, "a", b"m" * 32, keys["a"]))
    Traceback (most recent call last):
    locum.errors.FormatError: The announcement of 'b' is for another run, site or terms: its site differs.
    """
    if not isinstance(name, str) or name not in terms.sites:
        raise FormatError(f"{shown(name)} is not one of the federation's sites.")
    try:
        announced = read_announcement(terms, name, announcement)
    except PrivacyError as error:
        raise FormatError(str(error)) from None
    if not is_announced(terms, announced):
        raise FormatError(f"The announcement of {name!r} is not signed with the pinned key of that site.")


def is_announced(terms: MaskTerms, announced: Announced) -> bool:
    """Whether the pinned site signed its announcement."""
    return is_signed(terms, announced.site, canonical(**announced.body(terms)), announced.signature)


def announcements_digest(terms: MaskTerms, announced: Collection[Announced]) -> str:
    """SHA-256 over all announcements. Signatures are left out: they are random, and change nothing."""
    bodies = [a.body(terms) for a in sorted(announced, key=lambda a: a.site)]
    return digest("announcements", list=bodies)


def sign(key: EllipticCurvePrivateKey, statement: bytes) -> str:
    """A signature in hex."""
    return key.sign(statement, ECDSA(SHA384())).hex()


def is_signed(terms: MaskTerms, name: str, statement: bytes, signature: Any) -> bool:
    """Whether a pinned site signed a statement."""
    if name not in terms.sites or not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        return False
    try:
        terms.sites[name].verify(bytes.fromhex(signature), statement, ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def public_key(private: bytes) -> str:
    """The public X25519 key in hex."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def commitment(seed: bytes) -> str:
    """What a site announces about the seed of its own mask, so that a wrong one is noticed."""
    return hashlib.sha256(canonical("commitment") + seed).hexdigest()


def encrypt(terms: MaskTerms, private: bytes, to: Announced, sender: str, announcements: str, plain: bytes) -> bytes:
    """Shares for one other site. The key depends on both sites and on the list, and encrypts nothing else."""
    return _cipher(terms, private, to, sender, to.site, announcements).encrypt(bytes(12), plain, None)


def blob_size(terms: MaskTerms) -> int:
    """Length of the encrypted shares from one site to another, in bytes."""
    return 2 * secret_sharing.SHARE_BYTES * terms.steps + 16


def decrypt(terms: MaskTerms, private: bytes, sender: Announced, to: str, announcements: str, cipher: Any) -> bytes:
    """Undo `encrypt`."""
    if not isinstance(cipher, bytes) or len(cipher) != blob_size(terms):
        raise FormatError(f"The shares of {sender.site!r} are not {terms.steps} encrypted pairs of shares.")
    try:
        return _cipher(terms, private, sender, sender.site, to, announcements).decrypt(bytes(12), cipher, None)
    except InvalidTag:
        raise PrivacyError(
            f"The shares of {sender.site!r} were made for another site, list of sites or run, or were changed."
        ) from None


def self_stream(seed: bytes, site: str, context: str, words: int) -> Words:
    """The mask that a site adds for itself."""
    return _words(_hkdf(seed, canonical("self stream", site=site, context=context)), words)


def pair_stream(private: bytes, public: str, pair: tuple[str, str], context: str, words: int) -> Words:
    """The mask that two sites share; the site whose name sorts first adds it, the other subtracts it."""
    label = canonical("pair stream", sites=sorted(pair), context=context)
    return _words(_hkdf(_exchange(private, public), label), words)


def shown(value: Any) -> str:
    """Something untrusted, short enough for an error."""
    return repr(value[:80]) if isinstance(value, str) else f"a {type(value).__name__}"


def _head(terms: MaskTerms, site: str) -> dict[str, Any]:
    """What an announcement says besides its keys."""
    return {
        **HEAD,
        "message": "announcement",
        "run": terms.run,
        "terms": terms.terms,
        "parameters": terms.parameters,
        "site": site,
    }


def _cipher(terms: MaskTerms, private: bytes, other: Announced, sender: str, receiver: str, listed: str) -> AESGCM:
    label = canonical(
        "shares", run=terms.run, terms=terms.terms, sender=sender, receiver=receiver, announcements=listed
    )
    return AESGCM(_hkdf(_exchange(private, other.encryption), label))


def _exchange(private: bytes, public: str) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    )


def _hkdf(secret: bytes, label: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=label).derive(secret)


def _stream(key: bytes, length: int) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(length))


def _words(key: bytes, words: int) -> Words:
    # The byte order is fixed, so that two kinds of machine make the same mask.
    return np.frombuffer(_stream(key, 8 * words), dtype="<u8").astype(np.uint64)
