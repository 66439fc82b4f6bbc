"""A project of two units that compile in a second, and whose objects show what leaks into them."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_project import CommandProject

BUILD = """\
[general]
name = "tiny"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["{backend}"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.quiet]
backend = "{backend}"
{flags}
depends = []
src = ["{source}"]
"""
BINDING = """\
#include "registration.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
# No public name: what is made up instead must be the same each time.
QUIET = """\
#include <cstdio>
#include <cstdlib>

namespace {
struct Said {
  Said() {
    if (std::getenv("TINY_SAYS")) {
      std::puts(__FILE__ "\\0" __DATE__ "\\0" __TIME__);
    }
  }
} said;
} // namespace
"""
QUIET_CUDA = """\
#include <cstdlib>

namespace {
template <typename T> __global__ void fill(T *out) { out[threadIdx.x] = T(); }

struct Filled {
  Filled() {
    if (std::getenv("TINY_FILLS")) {
      fill<float><<<1, 32>>>(nullptr);
    }
  }
} filled;
} // namespace
"""
# Objects for the linker's optimizer have sections that are named after a random number.
FLAGS = {"cpu": 'cxx-flags = ["-flto", "-ffat-lto-objects"]', "cuda": ""}
SOURCES = {"cpu": ("cpu/quiet.cpp", QUIET), "cuda": ("cuda/quiet.cu", QUIET_CUDA)}


def write_tiny(folder: Path, backend: str, cache: Path | None = None) -> CommandProject:
    """The project in `folder/tiny`, committed."""
    path, text = SOURCES[backend]
    files = {
        "build.toml": BUILD.format(backend=backend, flags=FLAGS[backend], source=path),
        "torch-ext/binding.cpp": BINDING,
        "torch-ext/tiny/__init__.py": "__all__: list[str] = []\n",
        ".gitignore": "build/\n.kbuild/\n",
        path: text,
    }
    for name, content in files.items():
        target = folder / "tiny" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    bench = CommandProject(folder / "tiny", cache or folder / "cache")
    bench.cache.mkdir(exist_ok=True)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "tiny")):
        bench.git(*words)
    return bench
