"""Sources with boxed functions, compiled without Torch: stand-ins give symbols the same names."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = "torch-ext/binding.cpp"
STAND_INS = """\
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>
namespace c10 { enum class ScalarType : int8_t {}; template <class T> class HeaderOnlyArrayRef {}; }
namespace torch::headeronly { using c10::HeaderOnlyArrayRef; using c10::ScalarType; }
namespace torch::stable {
class Tensor { void *handle = nullptr; };
class Device {};
namespace detail {
using Boxed = void (*)(unsigned long *, unsigned long, unsigned long);
template <class F, F *f> struct boxer {
  static void boxed_fn(unsigned long *stack, unsigned long, unsigned long) {
    stack[0] = reinterpret_cast<unsigned long>(f);
  }
};
struct StableLibrary {
  void def(const char *schema);
  void impl(const char *name, Boxed function);
};
}  // namespace detail
}  // namespace torch::stable
#define TORCH_BOX(f) torch::stable::detail::boxer<std::remove_pointer_t<decltype(f)>, (f)>::boxed_fn
#define STABLE_TORCH_LIBRARY(ns, m) void registers_##ns(torch::stable::detail::StableLibrary &m)
using torch::stable::Tensor;
using torch::headeronly::HeaderOnlyArrayRef;
"""


def registration(*lines: str) -> str:
    """A function that registers ops as the macros of Torch do."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"STABLE_TORCH_LIBRARY(ops, m) {{\n{body}}}\n"


def compile_boxed(root: Path, variant: str, source: str) -> None:
    """Write a source of the project `root`, and compile it into the tree of a variant."""
    (root / SOURCE).parent.mkdir(parents=True, exist_ok=True)
    (root / SOURCE).write_text(source)
    header = root / "stand_ins.h"
    header.write_text(STAND_INS)
    tree = root / ".kbuild" / variant / "tree" / "CMakeFiles" / "kbuild-binding.dir"
    target = tree / f"{root / SOURCE}.o".removeprefix("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    argv = ["g++", "-std=c++17", "-O1", "-fPIC", "-w", "-include", str(header), "-c"]
    subprocess.run(  # noqa: TID251 - a compiler for a test
        [*argv, str(root / SOURCE), "-o", str(target)], check=True
    )
