"""pyelftools leaves hash tables alone when it is asked to."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section

from kbuild.checks.readers.fast_elf import FastElf


@pytest.mark.compile
@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_hash_tables_are_not_unpacked(library: Callable[..., bytes], style: str) -> None:
    data = library("int f(void) { return 1; }", f"-Wl,--hash-style={style}")
    kinds = {"gnu": "SHT_GNU_HASH", "sysv": "SHT_HASH"}
    (plain,) = ELFFile(io.BytesIO(data)).iter_sections(kinds[style])
    (lean,) = FastElf(io.BytesIO(data)).iter_sections(kinds[style])
    assert type(lean) is Section
    assert type(plain) is not Section
    assert lean.header == plain.header
