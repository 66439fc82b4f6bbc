from __future__ import annotations

import shlex

import pytest

from kbuild.build.unit import inputs
from kbuild.build.unit.command import CompileCommand, object_key, unit_key
from kbuild.build.unit.inputs import FileHashes

GCC = shlex.split(
    "c++ -DX=1 -I/p/a -isystem /t/include -isystem/t/api -ffile-prefix-map=/p=/kernel "
    "-ffile-prefix-map=/p/tree=/build -O3 -MD -MT o/a.o -MF o/a.o.d -o o/a.o -c /p/a.cpp"
)
NVCC = shlex.split(
    "nvcc -DX --threads=4 -isystem=/t/include -Xcompiler=-ffile-prefix-map=/p=/kernel "
    "-gencode=arch=compute_80,code=sm_80 -MD -MT a.o -MF a.o.d -x cu -c /p/a.cu -o a.o"
)


def test_what_gcc_is_told() -> None:
    command = CompileCommand(GCC, "CXX", "/p/tree")
    assert (command.source, command.object, command.depfile) == ("/p/a.cpp", "o/a.o", "o/a.o.d")
    assert command.folders == ["/p", "/p/a", "/t/include", "/t/api"]
    assert command.own_folders == ["/p", "/p/a"]
    assert command.options == [
        "-DX=1", "-ffile-prefix-map=/kernel", "-ffile-prefix-map=/build", "-O3",
    ]  # fmt: skip
    assert command.refusal == ""


def test_what_nvcc_is_told() -> None:
    command = CompileCommand(NVCC, "CUDA", "/p/tree")
    assert command.folders == ["/p", "/t/include"]
    assert (command.archs, command.threads) == (1, 1)  # one architecture is all that there is
    archs = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (80, 86, 89, 90, 100)]
    assert CompileCommand([*NVCC, *archs], "CUDA", "/p").threads == 4
    assert CompileCommand(["nvcc", *archs, "--threads", "3"], "CUDA", "/p").threads == 3
    assert CompileCommand(["nvcc", *archs, "-t", "0"], "CUDA", "/p").threads == 5
    assert CompileCommand(["nvcc", *archs], "CUDA", "/p").threads == 5
    assert CompileCommand(["nvcc", *archs], "CUDA", "/p").archs == 5
    assert command.refusal == ""
    assert "-Xcompiler=-ffile-prefix-map=/kernel" in command.options


def test_threads_are_neither_run_as_written_nor_looked_up_by() -> None:
    bare = [word for word in NVCC if word != "--threads=4"]
    written = (NVCC, [*bare, "-t", "2", "--jobserver"], [*bare, "--threads", "0"], [*bare, "-t=3"])
    keys = set()
    for argv in written:
        command = CompileCommand(argv, "CUDA", "/p")
        assert command.plain == bare
        keys.add((object_key(command, {}, FileHashes("").of), unit_key(command)))
    assert len(keys) == 1
    assert CompileCommand(["c++", "-t", "2"], "CXX", "/p").plain == ["c++", "-t", "2"]


def test_names_and_places_are_each_others_inverse() -> None:
    command = CompileCommand(GCC, "CXX", "/p/tree")
    for place, name in (
        ("/p/a.h", "/kernel/a.h"),
        ("/p/tree/b.h", "/build/b.h"),
        ("/usr/include/c.h", "/usr/include/c.h"),
    ):
        assert command.name(place) == name
        assert command.place(name) == place


@pytest.mark.parametrize(
    "arguments",
    [
        "a.o -o b",
        "-E -c a.cpp -o a.o",
        "@file -c a.cpp -o a.o",
        "-c a.cpp -o a.o",
        "-gsplit-dwarf -c a -o b",
    ],
)
def test_commands_that_no_cache_serves(arguments: str) -> None:
    assert CompileCommand(["c++", *arguments.split()], "CXX", "/").refusal


def test_the_key_knows_flags_and_language_but_not_places() -> None:
    def key(argv: list[str], language: str = "CXX", **environ: str) -> str:
        return object_key(CompileCommand(argv, language, "/p/tree"), environ, FileHashes("").of)

    moved = [word.replace("/t/", "/elsewhere/") for word in GCC]
    assert key(moved) == key(GCC)
    assert key([*GCC[:-2], "-g", *GCC[-2:]]) != key(GCC)
    assert key(GCC, "OBJCXX") != key(GCC)
    assert key(GCC, CPATH="/x") != key(GCC)
    assert key(GCC, KBUILD_COMPILER_ID="1") != key(GCC, KBUILD_COMPILER_ID="2")
    assert unit_key(CompileCommand(moved, "CXX", "/p")) == unit_key(
        CompileCommand(GCC, "CXX", "/p")
    )


def test_a_compiler_of_the_store_is_the_same_wherever_the_store_is() -> None:
    def key(store: str, entry: str, known: str = "") -> str:
        argv = [f"{store}/{entry}/bin/nvcc", *GCC[1:]]
        command = CompileCommand(argv, "CXX", "/p/tree")
        return object_key(command, {}, lambda _: "content", store=known or store)

    assert key("/a/store", "cuda-1") == key("/b/c/store", "cuda-1")
    assert key("/a/store", "cuda-1") != key("/a/store", "cuda-2")
    assert key("/a/store", "cuda-1", "/other") != key("/b/c/store", "cuda-1", "/other")


def test_versions_tell_what_a_wrapper_hides() -> None:
    def key(language: str, versions: str) -> str:
        return object_key(CompileCommand(GCC, language, "/p/tree"), {}, FileHashes("").of, versions)

    assert key("CXX", "c++=12") != key("CXX", "c++=13")
    assert key("CXX", "c++=12;cuda=13.0") == key("CXX", "c++=12;cuda=13.2")
    assert key("CUDA", "c++=12;cuda=13.0") != key("CUDA", "c++=12;cuda=13.2")


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a.o: a.cpp b.h\n", ["a.cpp", "b.h"]),
        ("a.o: a.cpp \\\n  b.h \\\r\n c.h\n", ["a.cpp", "b.h", "c.h"]),
        ("a.o : a\\ b.h c\\#d.h e$$f.h\n", ["a b.h", "c#d.h", "e$f.h"]),
        ("a.o:\n", []),
    ],
)
def test_depfiles(text: str, paths: list[str]) -> None:
    assert inputs.parse_plain_depfile(text) == paths
    assert inputs.parse_depfile(text) == paths
    assert inputs.parse_plain_depfile(inputs.render_depfile("a.o", paths)) == paths
