"""Images are compressed in packages, and the launcher reads them."""

from __future__ import annotations

import random
import subprocess
import zlib
from pathlib import Path

import pytest

from kbuild.dsl.launcher.images import _compressed
from kbuild.system.rendering import read

PROGRAM = """
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <iostream>
#include <stdexcept>
#include <vector>
struct Code { uint32_t offset, stored, size; };
%s
int main(int, char** arguments) {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const auto* blob = reinterpret_cast<const unsigned char*>(text.data());
  const Code code = {0, uint32_t(text.size()), uint32_t(std::stoul(arguments[1]))};
  std::vector<unsigned char> kept;
  try {
    const unsigned char* binary = binary_of(code, blob, kept);
    fwrite(binary, 1, code.size, stdout);
  } catch (const std::runtime_error& error) {
    fputs(error.what(), stderr);
    return 3;
  }
}
"""
DRAW = random.Random(7)  # noqa: S311 - draws test data
TEXTS = {
    "empty": b"",
    "one byte": b"x",
    "zeros": bytes(100_000),
    "words": b" ".join(DRAW.choice((b"mov", b"ld.global", b"st", b"bra")) for _ in range(30_000)),
    "noise": DRAW.randbytes(70_000),
    "far matches": DRAW.randbytes(32_000) * 3,
    "mixed": bytes(DRAW.choice((0, 0, 0, DRAW.randrange(256))) for _ in range(50_000)),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inflate")
    (folder / "main.cpp").write_text(PROGRAM % read("launcher/inflate.h"))
    flags = ("-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-Wall", "-Wextra")
    command = ("g++", *flags, "-o", str(folder / "main"), str(folder / "main.cpp"))
    subprocess.run(command, check=True)  # noqa: TID251
    return folder / "main"


def run(program: Path, stored: bytes, size: int) -> subprocess.CompletedProcess[bytes]:
    command = (str(program), str(size))
    return subprocess.run(command, input=stored, capture_output=True, check=False)  # noqa: TID251


def packed(text: bytes, level: int, strategy: int) -> bytes:
    packer = zlib.compressobj(level, wbits=-zlib.MAX_WBITS, strategy=strategy)
    return packer.compress(text) + packer.flush()


@pytest.mark.parametrize("name", TEXTS)
def test_binaries_come_back(program: Path, name: str) -> None:
    text = TEXTS[name]
    stored = _compressed(text)
    assert len(stored) <= len(text)
    done = run(program, stored, len(text))
    assert (done.returncode, done.stdout) == (0, text), done.stderr.decode()


def test_compressed_data_is_known_by_its_first_byte() -> None:
    text = DRAW.randbytes(1 << 18) + bytes(1 << 18)
    assert packed(text, 9, zlib.Z_DEFAULT_STRATEGY)[0] & 0b110 == 0
    assert _compressed(text) == text
    assert all(_compressed(text)[0] & 0b110 for text in (TEXTS["words"], TEXTS["zeros"]))


@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY])
def test_all_kinds_of_blocks(program: Path, level: int, strategy: int) -> None:
    for name in ("one byte", "words", "noise", "far matches"):
        stored = packed(TEXTS[name], level, strategy)
        if len(stored) != len(TEXTS[name]):
            done = run(program, stored, len(TEXTS[name]))
            assert (done.returncode, done.stdout) == (0, TEXTS[name]), done.stderr.decode()


def test_damage_is_an_error(program: Path) -> None:
    text = TEXTS["words"]
    stored = _compressed(text)
    assert run(program, stored[:-10], len(text)).returncode == 3
    for _ in range(40):
        damaged = bytearray(stored)
        damaged[DRAW.randrange(len(damaged))] ^= 1 << DRAW.randrange(8)
        assert run(program, bytes(damaged), len(text)).returncode in {0, 3}
