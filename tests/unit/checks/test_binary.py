"""The checks on binaries: each is shown to pass on a good file and to fail on a bad one.

Every bad library is tried stripped as well: the checks read what the dynamic linker reads.
"""

# ruff: noqa: E501 - one case is one line

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.checks.base import Check, Finding, Output
from kbuild.checks.binary import BinaryCheck
from kbuild.checks.manylinux import ManylinuxCheck
from kbuild.checks.needed import NeededCheck
from kbuild.checks.python_abi import PythonAbiCheck
from kbuild.checks.readers.symbols import demangle
from kbuild.checks.rpath import RpathCheck
from kbuild.checks.undefined import UndefinedCheck

pytestmark = pytest.mark.compile

CPU = platform.machine()
ID = "_relu_cpu_0a1b2c3"
EXTENSION = f"extern void *PyModule_Create2(void *, int);\nvoid *PyInit_{ID}(void) {{ return PyModule_Create2(0, 3); }}\n"
Compiled = Callable[..., Output]
Make = Callable[..., Output]
Run = Callable[[Check, Output], list[Finding]]


def test_a_bundled_library_is_checked_but_is_no_extension(make: Make, library, run: Run) -> None:
    bundled = library(
        "extern void _PyNot(void);\nvoid f(void) { _PyNot(); }",
        "-Wl,--enable-new-dtags",
        "-Wl,-rpath,/opt",
    )
    output = make({f"{ID}.abi3.so": library(EXTENSION), "libfoo.so.1": bundled})
    found = run(PythonAbiCheck(), output) + run(RpathCheck(), output)
    assert [(f.where, f.what) for f in found] == [
        ("libfoo.so.1", "`_PyNot` is not in CPython's stable ABI"),
        ("libfoo.so.1", "RUNPATH is `/opt`"),
    ]


@pytest.fixture
def too_new(compiled: Compiled, library: Callable[..., bytes], tmp_path: Path) -> Compiled:
    """A variant that asks a made-up libc for `brand_new@GLIBC_2.99`."""
    script = tmp_path / "versions"
    script.write_text("GLIBC_2.99 { global: brand_new; };\n")

    def made(**how: object) -> Output:
        stub = "int brand_new(void) { return 1; }"
        library(stub, "-nostdlib", f"-Wl,--version-script={script}", soname="libc.so.6")
        source = EXTENSION + "extern int brand_new(void);\nint call(void) { return brand_new(); }\n"
        flags = ["-nostdlib", str(tmp_path / "objects" / "libc.so.6")]
        return compiled(source, *flags, **how)

    return made


def test_manylinux_is_an_error_once_portability_was_promised(too_new: Compiled, run: Run) -> None:
    found = run(ManylinuxCheck(), too_new(output={"redistributable": True}))
    assert [f.severity for f in found] == ["error"]


def test_version_needs_without_a_symbol(compiled: Compiled, run: Run) -> None:
    source = EXTENSION + "extern void abort(void);\nvoid *table[] = {table, abort};\n"
    output = compiled(source, "-Wl,-z,pack-relative-relocs")
    found = run(ManylinuxCheck(), output)
    if not found:
        pytest.skip("this linker does not pack relative relocations")
    assert "the file as a whole needs GLIBC_ABI_DT_RELR" in found[0].what


def test_tables_that_the_linker_would_not_read(make: Make, library, run: Run) -> None:
    """A forged section table must not hide what DT_SYMTAB points to."""
    data = bytearray(library(EXTENSION))
    sections = int.from_bytes(data[0x28:0x30], "little")
    for start in range(sections, len(data), 64):
        if int.from_bytes(data[start + 4 : start + 8], "little") == 11:  # SHT_DYNSYM
            data[start + 16] ^= 0x40  # sh_addr
    (found,) = run(BinaryCheck(), make({f"{ID}.abi3.so": bytes(data)}))
    assert "do not agree with DT_SYMTAB" in found.what


def calling(*symbols: str) -> str:
    calls = "".join(f"extern void {s}(void);\nvoid call_{s}(void) {{ {s}(); }}\n" for s in symbols)
    return EXTENSION + calls


@pytest.mark.parametrize(
    ("defined", "words"),
    [
        ("_Z5scalePfd", "binding.cpp defines `scale(float*, double)`"),
        ("_ZN4mine5scaleEPff", "binding.cpp defines `mine::scale(float*, float)`"),
        ("_Z6scalesPff", "binding.cpp defines `scales(float*, float)`"),
        ("_Z4reluPf", "is it listed in `src`?"),
    ],
)
def test_a_definition_that_is_alike_is_named(
    compiled: Compiled, tmp_path: Path, defined: str, words: str
) -> None:
    output = compiled(calling("_Z5scalePff"))
    folder = tmp_path / "tree/CMakeFiles/k.dir"
    folder.mkdir(parents=True)
    source = tmp_path / "binding.c"
    source.write_text(f"void {defined}(void) {{}}\n")
    command = ["gcc", "-c", str(source), "-o", str(folder / "binding.cpp.o")]
    subprocess.run(command, check=True)  # noqa: TID251
    (found,) = UndefinedCheck().run(replace(output, tree=tmp_path / "tree"))
    assert "nobody defines `scale(float*, float)`" in found.what
    assert words in found.hint


@pytest.mark.parametrize(
    ("variant", "known", "lost"),
    [
        (
            f"torch213-cxx11-cu130-{CPU}-linux",
            ["cudaMalloc"],
            ["__cudaRegisterLinkedBinary_0a1b", "hipMalloc"],
        ),
        (f"torch213-cxx11-rocm72-{CPU}-linux", ["hipMalloc"], []),
        (f"torch213-cxx11-xpu20260-{CPU}-linux", ["_ZN4sycl3_V15queue4waitEv"], []),
        (
            f"torch-stable-abi211-cpu-{CPU}-linux",
            ["Sleef_expf16_u10"],
            ["_ZN2at4_ops4relu4callERKNS_6TensorE", "_ZN9libkineto3apiEv"],
        ),
        (
            f"tvm-ffi01-cpu-{CPU}-linux",
            ["TVMFFIErrorSetRaised"],
            ["aoti_torch_empty_strided", "Sleef_expf16_u10", "GOMP_parallel"],
        ),
    ],
)
def test_who_defines_what_depends_on_the_variant(
    compiled: Compiled, run: Run, variant: str, known: list[str], lost: list[str]
) -> None:
    output = compiled(calling(*known, *lost), output={"variant": variant})
    assert {name for f in run(UndefinedCheck(), output) for name in f.symbols} == set(lost)


@pytest.mark.parametrize(
    ("variant", "symbol", "absent"),
    [
        (f"torch213-cxx11-cpu-{CPU}-linux", "_ZN2at4_ops4reluE", True),
        (f"torch213-cxx11-cpu-{CPU}-linux", "_ZN3c104cuda12device_countEv", True),
        (f"torch213-cxx11-cu130-{CPU}-linux", "_ZN3c104cuda12device_countEv", False),
        # Nobody has looked into these.
        (f"torch213-cxx11-cu130-{CPU}-linux", "_ZN2at4_ops4reluE", False),
        (f"torch213-cxx11-rocm72-{CPU}-linux", "_ZN2at4_ops4reluE", False),
        (f"torch299-cxx11-cpu-{CPU}-linux", "_ZN2at4_ops4reluE", False),
        ("torch213-cxx11-cpu-aarch64-linux", "_ZN2at4_ops4reluE", True),
        ("torch213-cxx11-cpu-aarch64-linux", "Sleef_expf4_u10advsimd", False),
    ],
)
def test_what_torch_declares_and_does_not_export(
    compiled: Compiled, run: Run, variant: str, symbol: str, absent: bool
) -> None:
    found = run(UndefinedCheck(), compiled(calling(symbol), output={"variant": variant}))
    what = f"takes `{demangle(symbol)}` from Torch, but Torch 2.13.0 does not export it"
    assert [(f.severity, f.what) for f in found] == ([("error", what)] if absent else [])


def test_openmp_of_the_process_is_only_asked_for(compiled: Compiled, run: Run) -> None:
    """Torch offers its libgomp to everybody: such a kernel loads, as other tools build it."""
    output = compiled(calling("GOMP_parallel"))
    assert run(UndefinedCheck(), output) == []
    (found,) = run(NeededCheck(), output)
    assert found.severity == "warning"
    assert "takes `GOMP_parallel` from OpenMP, but does not need `libgomp.so.1`" in found.what


def test_names_that_torch_merely_exports_need_its_library(compiled: Compiled, run: Run) -> None:
    (found,) = run(NeededCheck(), compiled(calling("Sleef_expf16_u10", "cudaMalloc")))
    assert (found.severity, found.symbols) == ("error", ("Sleef_expf16_u10",))


OPENMP = """
__attribute__((used)) extern void newer(void);
__asm__(".symver newer,GOMP_scope_start@{version}");
void call_newer(void) {{ newer(); }}
"""


@pytest.mark.parametrize(("version", "known"), [("GOMP_5.1", False), ("GOMP_4.0", True)])
def test_a_newer_openmp_than_torchs(
    compiled: Compiled, library, run: Run, tmp_path: Path, version: str, known: bool
) -> None:
    (tmp_path / "map").write_text(f"{version} {{ GOMP_scope_start; }};")
    flags = ("-Wl,-soname,libgomp.so.1", f"-Wl,--version-script={tmp_path / 'map'}")
    (tmp_path / "libgomp.so.1").write_bytes(library("void GOMP_scope_start(void) {}", *flags))
    source = EXTENSION + OPENMP.format(version=version)
    output = compiled(source, str(tmp_path / "libgomp.so.1"))
    said = [finding.what for finding in run(NeededCheck(), output)]
    what = (
        "needs GOMP_5.1 of `libgomp.so.1` for `GOMP_scope_start`, which the one in the wheel of "
        "Torch 2.13.0 does not have"
    )
    assert said == ([] if known else [what])
