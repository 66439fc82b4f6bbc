"""Real libraries, each pair differing in one thing that is known."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.publish.comparison import NotElfError, compare_elf

SOURCE = """
const char *where() { return "%s"; }
int table[4] = {1, 2, 3, %d};
extern "C" int twice(int x) { return x * %d; }
extern "C" int untouched(int x) { return x + 1; }
static int %s(int x) { return x - 1; }
extern "C" int calls(int x) { return %s(x) + 2; }
"""
Library = Callable[..., bytes]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")

    def made(
        place: str = "/a", last: int = 4, factor: int = 3, local: str = "less", *flags: str
    ) -> bytes:
        text = SOURCE % (place, last, factor, local, local)
        target = tmp_path / "k.so"
        argv = [compiler, "-shared", "-fPIC", "-O0", "-Wl,--build-id=none", "-x", "c++", "-"]
        subprocess.run([*argv, "-o", str(target), *flags], input=text, text=True, check=True)  # noqa: TID251
        return target.read_bytes()

    return made


pytestmark = pytest.mark.compile


def test_changed_code_names_its_function(library):
    places = compare_elf(library(), library(factor=5))
    (place,) = [place for place in places if place.section == ".text"]
    assert place.symbol == "twice"
    assert place.offset
    assert place.before != place.after


def test_changed_data_names_its_object(library):
    (place,) = compare_elf(library(), library(last=9))
    assert (place.section, place.symbol) == (".data", "table")
    assert place.before.startswith("04")
    assert place.after.startswith("09")


def test_a_path_is_shown_as_text(library):
    places = compare_elf(library("/home/ann/k.cu"), library("/home/bob/k.cu"))
    (place,) = [place for place in places if place.section == ".rodata"]
    assert "/home/ann/k.cu" in place.before
    assert "/home/bob/k.cu" in place.after


def test_a_renamed_local_function_is_listed(library):
    places = compare_elf(library(local="tmpxft_1"), library(local="tmpxft_2"))
    assert ".strtab" in {place.section for place in places}
    notes = {(place.symbol, place.note) for place in places if place.section == "symbols"}
    assert notes == {("_ZL8tmpxft_1i", "only before"), ("_ZL8tmpxft_2i", "only now")}


def test_another_size_and_another_section(library):
    places = compare_elf(library(), library("/a", 4, 3, "less", "-Wl,--build-id=sha1"))
    notes = {place.section: place.note for place in places}
    assert notes[".note.gnu.build-id"] == "the section was not there before"


def test_bytes_between_the_sections(library):
    data = bytearray(library())
    changed = bytearray(data)
    changed[8] ^= 1  # padding of e_ident
    (place,) = compare_elf(bytes(data), bytes(changed))
    assert (place.section, place.offset) == ("", 8)


@pytest.mark.parametrize("damage", [b"", b"text", b"\x7fELF\x02\x01\x01"])
def test_no_elf(library, damage):
    with pytest.raises(NotElfError):
        compare_elf(library(), damage)
