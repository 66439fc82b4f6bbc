"""Libraries and sources that lie about their sizes, or nest without end."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks.archs import linked_device_libraries
from kbuild.checks.base import Check, Finding, Output, findings_of
from kbuild.checks.depends import _needed
from kbuild.checks.imports import check_imports_source
from kbuild.checks.ops import check_ops_source
from kbuild.checks.readers.device_code import read_device_code
from kbuild.checks.readers.elf import UnreadableBinaryError, read_elf
from kbuild.checks.report import CheckSelection, run_selected_checks
from kbuild.checks.static import find_static_libraries
from kbuild.dsl.image_rows import read_kernel_resources
from kbuild.project.variant import Variant
from kbuild.system.errors import DamagedFileError
from tests.support.device_code import dynamic_elf, fatbin

SOUND = dynamic_elf()
VARIANT = "torch213-cxx11-cpu-x86_64-linux"
HUGE = (1 << 40, (1 << 63) - 1, (1 << 64) - 1)
(SECTIONS,) = struct.unpack_from("<Q", SOUND, 40)
(COUNT,) = struct.unpack_from("<H", SOUND, 60)
OFFSET, SIZE, INFO = 24, 32, 44
"""Of the fields of a section's header."""


def section(kind: int) -> int:
    """Where the header of the first section of a type is."""
    headers = [SECTIONS + 64 * at for at in range(COUNT)]
    return next(at for at in headers if struct.unpack_from("<I", SOUND, at + 4)[0] == kind)


def changed(at: int, layout: str, value: int) -> bytes:
    data = bytearray(SOUND)
    struct.pack_into(layout, data, at, value)
    return bytes(data)


def put(folder: Path, data: bytes, name: str = "a.so") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


class TestElf:
    @pytest.mark.parametrize("kind", [1, 3, 4, 6, 11, 0x6FFFFFFE, 0x6FFFFFFF])
    @pytest.mark.parametrize("field", [OFFSET, SIZE])
    @pytest.mark.parametrize("value", HUGE)
    def test_sections_outside_of_the_file(self, tmp_path, kind, field, value):
        path = put(tmp_path, changed(section(kind) + field, "<Q", value))
        for read in (read_elf, read_device_code, find_static_libraries):
            with pytest.raises(UnreadableBinaryError, match="not a valid ELF file"):
                read(path)
        assert linked_device_libraries(path) == ()

    def test_a_table_of_nothing_takes_no_memory(self, tmp_path):
        """SHT_NOBITS: pyelftools would make as many zeros as the header says."""
        data = bytearray(changed(section(3) + SIZE, "<Q", 1 << 40))
        struct.pack_into("<I", data, section(3) + 4, 8)
        with pytest.raises(UnreadableBinaryError, match="SHT_NOBITS"):
            read_elf(put(tmp_path, bytes(data)))

    def test_versions_without_end(self, tmp_path):
        """Four billion entries, each of which is the first again."""
        data = changed(section(0x6FFFFFFE) + INFO, "<I", 0xFFFFFFFF)
        with pytest.raises(UnreadableBinaryError, match="no room"):
            read_elf(put(tmp_path, data))

    def test_several_dynamic_sections(self, tmp_path):
        with pytest.raises(UnreadableBinaryError, match="more than one dynamic section"):
            read_elf(put(tmp_path, changed(64, "<I", 2)))


class TestOthers:
    @pytest.mark.parametrize("at", [40, 48, 58])
    def test_resources_of_a_damaged_cubin(self, at):
        cubin = bytearray(fatbin((2, "90")))
        start = cubin.index(b"\x7fELF")
        cubin[start + at : start + at + 6] = b"\xff" * 6
        assert read_kernel_resources(bytes(cubin)) == ()


class Failing(Check):
    name, summary, group = "failing", "Never holds.", "abi"
    error: Exception

    def run(self, output: Output) -> list[Finding]:
        raise self.error

    def facts(self, output: Output) -> dict:
        raise self.error


class TestFindings:
    @pytest.mark.parametrize(
        ("error", "where", "words"),
        [
            (DamagedFileError("`a.so` is damaged"), ".", "`a.so` is damaged"),
            (RecursionError(), ".", "nested too deeply"),
            (MemoryError(), ".", "asks for more memory"),
            (IsADirectoryError(21, "Is a directory", "{}/__init__.py"), "__init__.py", "Is a dir"),
            (OSError("what"), ".", "what"),
        ],
    )
    def test_what_cannot_be_read_is_a_finding(self, tmp_path, error, where, words):
        root = tmp_path / VARIANT
        if isinstance(error, IsADirectoryError):
            error.filename = error.filename.format(root)
        check, output = Failing(), Output(root, Variant.parse(VARIANT))
        check.error = error
        (finding,) = findings_of(check, output) or ()
        assert (finding.severity, finding.where) == ("error", where)
        assert words in finding.what
        assert not run_selected_checks(output, (check,), CheckSelection()).ok

    def test_a_second_symbol_table_that_lies(self, tmp_path):
        """Only a look for static libraries reads it."""
        data = bytearray(SOUND)
        struct.pack_into("<I", data, section(7) + 4, 2)  # the note becomes SHT_SYMTAB
        struct.pack_into("<Q", data, section(7) + 8, 0x800)  # compressed
        struct.pack_into("<I", data, section(7) + 40, 2)
        struct.pack_into("<Q", data, section(7) + 56, 24)
        library = put(tmp_path / VARIANT, bytes(data), "_x_1.abi3.so")
        assert read_elf(library).needed
        wanted = CheckSelection(only=("static",))
        output = Output(library.parent, Variant.parse(VARIANT))
        (finding,) = run_selected_checks(output, wanted.checks(), wanted).findings
        assert (finding.severity, finding.where) == ("error", "_x_1.abi3.so")


@pytest.fixture(
    params=["(" * 5000, "x = " + "-" * 3000 + "1", "x = " + "a+" * 3000 + "1", "x = [" * 90, "\0"]
)
def deep(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return put(tmp_path, request.param.encode(), "__init__.py")


class TestSources:
    @pytest.mark.parametrize("check", [check_imports_source, check_ops_source])
    def test_checks(self, deep, check: Callable[[Path, str], list[Finding]]):
        found = check(deep.parent, "own")
        assert all(finding.where.startswith("__init__.py") for finding in found)

    def test_needed(self, deep):
        assert _needed(deep.read_bytes()) == {}
