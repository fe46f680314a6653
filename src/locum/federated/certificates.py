"""Keys for a federation: a certificate authority, the server's certificate, and a key pair per site."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from locum.errors import ConfigError
from locum.federated.site_keys import SITE_NAME, check_site_name
from locum.io import create_bytes, lies_in_release

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise ConfigError("Certificates need cryptography: pip install 'locum[federated]'.") from None


_HOST = re.compile(rf"{SITE_NAME.pattern}(?:\.{SITE_NAME.pattern})*")


def make_certificates(
    folder: str | Path,
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    sites: Sequence[str] = (),
    *,
    days: int = 730,
) -> dict[str, Path]:
    """Write `ca.crt`, `server.crt` and `server.key`, and `NAME.key` with `NAME.pub` for each of `sites`.

    `ca.crt` goes to every site. `server.crt` and `server.key` stay with the coordinator. `NAME.key` goes to that site
    only; `NAME.pub` stays here, and admits the site. A site that makes its own pair (`make_site_key`) need not trust
    anyone with its key.

    The authority's key signs once and is discarded, so it cannot be stolen. To rotate, make a new folder in time,
    have the sites accept both authorities (one file may hold both `ca.crt`, one after the other), restart the
    coordinator with the new files, then have the sites drop the old one. Keys of sites do not expire: to replace one,
    replace its `.pub`; to exclude a site, remove it.

    Private files have mode 0600. Nothing is overwritten: if one of the files exists, none is written.

    Parameters
    ----------
    folder
        Folder for the files; the current folder, the root and the inside of a release are refused.
    hosts
        Names or addresses under which sites reach the coordinator; localhost is always among them.
    sites
        Names of the sites that get a key pair: letters, digits and inner hyphens.
    days
        How long the certificates are valid, 1 to 3650.

    Returns
    -------
    dict of Path
        The files by name.

    Examples
    --------
    >>> from locum.federated import make_certificates
    >>> sorted(make_certificates("keys", ["federation.example.org"], ["site-a"]))
    ['ca.crt', 'server.crt', 'server.key', 'site-a.key', 'site-a.pub']
    """
    if not hosts:
        raise ConfigError("`hosts` must name at least one name or address under which sites reach the coordinator.")
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= 3650:
        raise ConfigError(f"`days` must be 1 to 3650; got {days!r}.")
    if len({check_site_name(s) for s in sites}) < len(sites):
        raise ConfigError(f"`sites` must name each site once; got {list(sites)!r}.")
    authority, server = generate_private_key(SECP384R1()), generate_private_key(SECP384R1())
    root = _authority(authority, days)
    files = {
        "ca.crt": root.public_bytes(Encoding.PEM),
        "server.crt": _server(server, authority, root, hosts, days).public_bytes(Encoding.PEM),
        "server.key": _private(server),
    }
    for site in sites:
        files |= _pair(site)
    return _write(Path(folder), files)


def make_site_key(folder: str | Path, name: str) -> dict[str, Path]:
    """Write the key pair of a site; nothing is overwritten.

    Parameters
    ----------
    folder
        Folder for the two files.
    name
        Name of the site: 1 to 63 letters, digits and inner hyphens.

    Returns
    -------
    dict of Path
        `NAME.key`, which stays at the site, and `NAME.pub`, which admits it at the coordinator.

    Examples
    --------
    >>> from locum.federated import make_site_key
    >>> sorted(make_site_key("own-keys", "site-b"))
    ['site-b.key', 'site-b.pub']
    """
    return _write(Path(folder), _pair(check_site_name(name)))


def check_new_folder(folder: Path) -> None:
    """Raise if files of a federation, such as private keys, have no place in a folder."""
    resolved = folder.resolve()
    if resolved in (Path.cwd(), Path(resolved.anchor)):
        raise ConfigError(f"Files of a federation need their own folder; got {str(folder)!r}. Name a new folder.")
    if lies_in_release(resolved / "key"):
        raise ConfigError(
            f"A release is made to be sent: keep files of a federation out of its folder; got {str(folder)!r}."
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{str(folder)!r} is not a folder: name a new one.")


def check_host(text: str) -> x509.GeneralName:
    """A name or address under which a coordinator is reached, as certificates hold it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        if not _HOST.fullmatch(text):
            raise ConfigError(f"A host must be a name or an address without a port; got {text[:80]!r}.") from None
        return x509.DNSName(text)


def _pair(name: str) -> dict[str, bytes]:
    # Flower reads OpenSSH's format, which ssh-keygen writes.
    key = generate_private_key(SECP384R1())
    return {
        f"{name}.key": key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        f"{name}.pub": key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n",
    }


def _private(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _unsigned(subject: str, issuer: str, key: EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    # A site whose clock is an hour slow must still be able to connect on the first day.
    start = datetime.now(UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(key: EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    return (
        _unsigned("Locum federation", "Locum federation", key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA384())
    )


def _server(
    key: EllipticCurvePrivateKey,
    authority: EllipticCurvePrivateKey,
    root: x509.Certificate,
    hosts: Sequence[str],
    days: int,
) -> x509.Certificate:
    # For a trial on the coordinator's own machine.
    names = dict.fromkeys([*hosts, "localhost", "127.0.0.1"])
    identifier = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _unsigned("Locum coordinator", "Locum federation", key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([check_host(h) for h in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority, hashes.SHA384())
    )


def _write(folder: Path, files: dict[str, bytes]) -> dict[str, Path]:
    check_new_folder(folder)
    paths = {name: folder / name for name in files}
    for path in paths.values():
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{str(path)!r} already exists. Keys are never overwritten: name a new folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in files.items():
        mode = 0o600 if name.endswith(".key") else 0o644
        if not create_bytes(paths[name], content, mode=mode):
            raise ConfigError(f"{str(paths[name])!r} already exists. Keys are never overwritten: name a new folder.")
    return paths
