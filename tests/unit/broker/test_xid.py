"""Names of branches: octets, text, and what is neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.broker.transactions.xid import Xid, xid_of, xid_of_identifier, xid_of_text
from flintmq.errors import ChannelFault

XIDS = st.builds(
    Xid,
    st.integers(0, 0xFFFFFFFE),
    st.binary(min_size=1, max_size=64),
    st.binary(max_size=64),
)


@given(XIDS)
def test_octets_and_text_lead_back(xid: Xid) -> None:
    assert xid_of(xid.octets()) == xid
    assert xid_of_text(str(xid)) == xid


def test_what_it_looks_like() -> None:
    assert Xid(42, b"order", b"1").octets() == b"\x00\x00\x00\x2a\x05\x01order1"
    assert str(Xid(42, b"order", b"1")) == "42:6f72646572:31"
    assert str(Xid(0, b"g", b"")) == "0:67:"


@given(st.binary(max_size=140))
def test_any_octets_are_an_xid_or_refused(octets: bytes) -> None:
    try:
        found = xid_of(octets)
    except ChannelFault:
        return
    assert found.octets() == octets


@given(st.text(max_size=300))
def test_any_text_is_an_xid_or_refused(text: str) -> None:
    try:
        found = xid_of_text(text)
    except ChannelFault:
        return
    assert xid_of_text(str(found)) == found


@pytest.mark.parametrize(
    ("identifier", "xid"),
    [
        ("a", Xid(0, b"a", b"")),
        ("a" * 64, Xid(0, b"a" * 64, b"")),
        ("a" * 65, Xid(0, b"a" * 64, b"a")),
        ("a" * 128, Xid(0, b"a" * 64, b"a" * 64)),
    ],
)
def test_identifiers_of_the_old_class(identifier: str, xid: Xid) -> None:
    assert xid_of_identifier(identifier) == xid


@pytest.mark.parametrize("identifier", ["", "a" * 129])
def test_identifiers_that_do_not_fit(identifier: str) -> None:
    with pytest.raises(ChannelFault, match="dtx-identifier has 1 to 128 octets"):
        xid_of_identifier(identifier)
