import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbuild.publish.comparison import first_difference, first_offset


@given(st.binary(max_size=40), st.integers(0, 39), st.integers(1, 255))
def test_one_flipped_byte_is_where_they_part(data, at, flip):
    if at >= len(data):
        return
    changed = bytearray(data)
    changed[at] ^= flip
    assert first_offset(data, bytes(changed)) == at


def test_far_into_a_large_file():
    data = bytes(200_000)
    changed = bytearray(data)
    changed[199_990] = 1
    assert first_offset(data, bytes(changed)) == 199_990


def test_one_continues_the_other():
    place = first_difference(".data", b"abcd", b"abcdef")
    assert (place.offset, place.before, place.after) == (4, "end", "65 66")
    assert place.note == "4 -> 6 bytes"


@pytest.mark.parametrize("path", ["/home/a/relu.cu", "/home/a/" + "x" * 80 + "/relu.cu"])
def test_strings_are_shown_as_such(path):
    table = b"\0first\0" + path.encode() + b"\0last\0"
    place = first_difference(".rodata", table, table.replace(b"/a/", b"/b/"), text=True)
    assert "/home/a/" in place.before
    assert "/home/b/" in place.after
    assert len(place.before) < 70
