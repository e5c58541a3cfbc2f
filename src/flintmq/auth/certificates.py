"""The user that a client's certificate names, for EXTERNAL.

A certificate comes as ssl tells it: `subject` is a sequence of relative distinguished names, the most general
first, and `subjectAltName` pairs of a kind and a name. An authority of the settings has signed it.
"""

from __future__ import annotations

from typing import Any

from flintmq.config.auth import CertificateField

# How a distinguished name writes what ssl calls by its long name (RFC 4514).
SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "emailAddress",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
SAN_KINDS = {"san_dns": "DNS", "san_uri": "URI", "san_email": "email"}
SPECIAL = frozenset(',+"\\<>;=')


def user_of(certificate: dict[str, Any], chosen: CertificateField) -> str:
    """The name in the field that the settings choose, or ValueError, which says what is missing."""
    subject: list[tuple[tuple[str, str], ...]] = list(certificate.get("subject", ()))
    if chosen == "distinguished_name":
        if not subject:
            raise ValueError("the certificate has no subject")
        return ",".join("+".join(_attribute(*each) for each in part) for part in reversed(subject))
    if chosen == "common_name":
        what = "common name"
        names = [value for part in subject for kind, value in part if kind == "commonName"]
        if len(names) > 1:
            raise ValueError(f"the certificate has {len(names)} common names")
    else:
        what = f"alternative name of the kind {SAN_KINDS[chosen]}"
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == SAN_KINDS[chosen]]
    if not names or not names[0]:
        raise ValueError(f"the certificate has no {what}")
    if not names[0].isprintable():
        raise ValueError(f"the {what} of the certificate has letters that do not print")
    return names[0]


def _attribute(kind: str, value: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in SPECIAL else letter for letter in value)
    if escaped.startswith((" ", "#")):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return f"{SHORT_NAMES.get(kind, kind)}={escaped}"
