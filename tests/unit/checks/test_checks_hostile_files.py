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
from kbuild.checks.readers.macho import read_macho
from kbuild.checks.readers.nvidia import read_kernel_resources
from kbuild.checks.report import CheckSelection, run_selected_checks
from kbuild.checks.static import find_static_libraries
from kbuild.project.variant import Variant
from kbuild.publish.card.model import CardError
from kbuild.publish.card.public_api import read_public_api
from kbuild.system.errors import DamagedFileError
from kbuild.toolchains.manylinux.environment import newer_members
from tests.support.device_code import dynamic_elf, elf, fatbin

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

    @pytest.mark.parametrize(("at", "layout"), [(40, "<Q"), (32, "<Q"), (58, "<H"), (60, "<H")])
    def test_headers_outside_of_the_file(self, tmp_path, at, layout):
        limit = (1 << 8 * struct.calcsize(layout)) - 1
        with pytest.raises(UnreadableBinaryError):
            read_elf(put(tmp_path, changed(at, layout, limit)))

    @pytest.mark.parametrize(("size", "count"), [(54, 56), (58, 60)])
    def test_headers_that_take_no_room(self, tmp_path, size, count):
        """As many as a file says, each in no bytes at all."""
        data = bytearray(changed(size, "<H", 0))
        struct.pack_into("<H", data, count, 0xFFF0)
        with pytest.raises(UnreadableBinaryError, match="have 0 bytes each instead of"):
            read_elf(put(tmp_path, bytes(data)))

    def test_a_table_of_nothing_takes_no_memory(self, tmp_path):
        """SHT_NOBITS: pyelftools would make as many zeros as the header says."""
        data = bytearray(changed(section(3) + SIZE, "<Q", 1 << 40))
        struct.pack_into("<I", data, section(3) + 4, 8)
        with pytest.raises(UnreadableBinaryError, match="SHT_NOBITS"):
            read_elf(put(tmp_path, bytes(data)))

    def test_a_compressed_table_is_not_unpacked(self, tmp_path):
        with pytest.raises(UnreadableBinaryError):
            read_elf(put(tmp_path, changed(section(11) + 8, "<Q", 0x802)))

    def test_a_place_that_no_file_reaches(self, tmp_path):
        data = bytearray(changed(section(1) + OFFSET, "<Q", 1 << 63))
        struct.pack_into("<I", data, section(1) + 4, 8)  # SHT_NOBITS,
        struct.pack_into("<Q", data, section(1) + 8, 0x800)  # and compressed
        for read in (read_elf, read_device_code):
            with pytest.raises(UnreadableBinaryError, match="not a valid ELF file"):
                read(put(tmp_path, bytes(data)))

    def test_versions_without_end(self, tmp_path):
        """Four billion entries, each of which is the first again."""
        data = changed(section(0x6FFFFFFE) + INFO, "<I", 0xFFFFFFFF)
        with pytest.raises(UnreadableBinaryError, match="no room"):
            read_elf(put(tmp_path, data))

    def test_several_dynamic_sections(self, tmp_path):
        with pytest.raises(UnreadableBinaryError, match="more than one dynamic section"):
            read_elf(put(tmp_path, changed(64, "<I", 2)))

    def test_segments_outside_of_the_file(self, tmp_path):
        for value in HUGE:
            find_static_libraries(put(tmp_path, changed(64 + 8, "<Q", value), f"{value}.so"))


class TestOthers:
    @pytest.mark.parametrize("read", [read_elf, read_macho, read_device_code])
    @pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xff" * 64])
    def test_nothing_of_the_kind(self, tmp_path, read, data):
        with pytest.raises(DamagedFileError):
            read(put(tmp_path, data))

    @pytest.mark.parametrize("at", [40, 48, 58])
    def test_resources_of_a_damaged_cubin(self, at):
        cubin = bytearray(fatbin((2, "90")))
        start = cubin.index(b"\x7fELF")
        cubin[start + at : start + at + 6] = b"\xff" * 6
        assert read_kernel_resources(bytes(cubin)) == ()

    def test_section_headers_without_a_size(self):
        """65535 headers that are one: each name would be as long as the file."""
        head = b"\x7fELF\x02\x01".ljust(18, b"\0") + struct.pack("<H", 190)
        head += bytes(20) + struct.pack("<Q", 0) + bytes(10) + struct.pack("<HHH", 0, 0xFFFF, 0)
        assert read_kernel_resources(head + b"a" * (1 << 20)) == ()

    @pytest.mark.parametrize(
        "member",
        [
            b"x",
            SOUND[:59],
            changed(40, "<Q", (1 << 64) - 1),
            changed(60, "<H", 0xFFFF),
            changed(section(3), "<I", 0).replace(b"\x0b\0\0\0", b"\2\0\0\0"),
        ],
    )
    def test_archives_of_objects(self, member):
        head = f"{'a.o/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(member):<10}`\n".encode()
        for archive in (b"!<arch>\n" + head + member, b"!<arch>\n" + head.replace(b"644", b"\xff")):
            try:
                list(newer_members(archive, ()))
            except DamagedFileError as error:
                assert "libstdc++.a" in error.message  # noqa: PT017 - some are sound

    def test_an_archive_that_goes_backwards(self):
        head = f"{'a.o/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{-60:<10}`\n".encode()
        with pytest.raises(DamagedFileError, match="no size"):
            list(newer_members(b"!<arch>\n" + head, ()))


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

    def test_a_variant_full_of_damage(self, tmp_path):
        root = tmp_path / VARIANT
        put(root, b'{"a":' * 1000, "metadata.json")
        put(root, elf({".nv_fatbin": b"\xff" * 64}), "_x_1.abi3.so")
        put(root, changed(section(11) + SIZE, "<Q", 1 << 60), "other.so")
        put(root, b"x = " + b"(" * 5000, "deep.py")
        put(root, b"\0", "nul.py")
        (root / "__init__.py").mkdir()
        (root / "loop.so").symlink_to("loop.so")
        wanted = CheckSelection(slow=False)
        found = run_selected_checks(Output(root, Variant.parse(VARIANT)), wanted.checks(), wanted)
        assert {finding.where.partition(":")[0] for finding in found.findings} >= {
            "metadata.json",
            "other.so",
            "deep.py",
            "nul.py",
        }


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

    def test_public_api(self, deep):
        try:
            read_public_api(deep.parent)
        except CardError as error:
            assert error.hint  # noqa: PT017 - what is only assigned can be followed

    def test_a_long_default(self, tmp_path):
        put(tmp_path, f"def f(x={'a.' * 900}b): ...".encode(), "__init__.py")
        with pytest.raises(CardError, match="nested too deeply"):
            read_public_api(tmp_path)
