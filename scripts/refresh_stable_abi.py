"""Refresh `kbuild/plugins/advice/stable_abi_names.toml` from the headers of Torch releases.

    python scripts/refresh_stable_abi.py [--check] INCLUDE_FOLDER...

Give the `include` folders of several releases, as kbuild keeps them in its store
(`kbuild toolchain list`), oldest first. What `stable_abi.toml` says by hand goes before.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).parent.parent / "kbuild/plugins/advice/stable_abi_names.toml"
BASE = (2, 9)
OPS = "torch/csrc/stable/ops.h"
GUARD = re.compile(r"TORCH_FEATURE_VERSION\s*>=\s*TORCH_VERSION_(\d+)_(\d+)_0")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
STABLE = "torch/csrc/stable"
INLINE = re.compile(r"^inline [^;={(]*?\b(\w+)\(", re.MULTILINE)
METHOD = re.compile(r"^  [\w:<>*& ]+? \*?(\w+)\(", re.MULTILINE)
EXPORTED = re.compile(r"AOTI_TORCH_EXPORT\b[^;{(]*?\b(\w+)\s*\(")
NAMES = (
    (OPS, INLINE, "torch::stable::"),
    (f"{STABLE}/macros.h", re.compile(r"^#\s*define (\w+)\(", re.MULTILINE), ""),
    (f"{STABLE}/c/shim.h", EXPORTED, ""),
    (f"{STABLE}/generator_struct.h", re.compile(r"^class (\w+) ", re.MULTILINE), "torch::stable::"),
    (f"{STABLE}/pyobject.h", INLINE, "torch::stable::"),
)
METHODS = ((f"{STABLE}/tensor_struct.h", METHOD), (f"{STABLE}/accelerator.h", METHOD))
"""Headers and what they declare: names, methods."""
Release = tuple[int, ...]


def sections(header: Path) -> Iterator[tuple[Release, str]]:
    """(release, text) of the stretches of a header, by the guards around them."""
    stack: list[Release] = []
    kept: dict[Release, list[str]] = defaultdict(list)
    text = COMMENT.sub("", header.read_text("utf-8")) if header.is_file() else ""
    for line in text.splitlines():
        if re.match(r"\s*#\s*if", line):
            guard = GUARD.search(line)
            stack.append((int(guard[1]), int(guard[2])) if guard else BASE)
        elif re.match(r"\s*#\s*else", line) and stack:
            stack[-1] = BASE
        elif re.match(r"\s*#\s*endif", line) and stack:
            stack.pop()
        else:
            kept[max([BASE, *stack])].append(line)
    return ((release, "\n".join(lines)) for release, lines in sorted(kept.items()))


def first_releases(header: Path, pattern: re.Pattern[str]) -> dict[str, Release]:
    """Each name of a header, with the oldest release that has it."""
    found: dict[str, Release] = {}
    for release, text in sections(header):
        for match in pattern.finditer(text):
            found.setdefault(match[1], release)
    return found


def forwarded(include: Path) -> dict[str, str]:
    """Headers of the C++ API that do no more than include one for the host alone."""
    found = {}
    for folder in ("c10", "ATen"):
        for header in sorted((include / folder).rglob("*.*h")):
            name = rf"{re.escape(header.stem)}\.h"
            own = rf'^#\s*include [<"](torch/headeronly/[\w/]*\b{name})[>"]'
            if match := re.search(own, header.read_text("utf-8"), re.MULTILINE):
                found[header.relative_to(include).as_posix()] = match[1]
    return found


def release_of(include: Path) -> str:
    """`2.15` as the headers say it."""
    text = (include / "torch/headeronly/version.h").read_text("utf-8")
    parts = (re.search(rf"TORCH_VERSION_{name}\s+(\d+)", text) for name in ("MAJOR", "MINOR"))
    return ".".join(match[1] for match in parts if match)


def written(release: Release) -> str:
    """`2.10` of numbers."""
    return ".".join(map(str, release))


def table(trees: list[Path]) -> str:
    """The whole file."""
    newest = trees[-1]
    lines = [
        f"# Names of Torch's stable ABI in the headers of Torch {release_of(newest)}. Written by",
        "# scripts/refresh_stable_abi.py. `stable_abi.toml` says what they mean.",
        "",
        f'torch = "{release_of(newest)}"',
        "",
        "# Functions of torch::stable that ATen has as well -> the oldest Torch that runs them.",
        "[functions]",
    ]
    functions = first_releases(newest / OPS, NAMES[0][1])
    lines += [f'{name} = "{written(came)}"' for name, came in sorted(functions.items())]
    forwards = forwarded(newest)
    lines += [
        "",
        "# Headers of the C++ API -> the header-only ones that they include.",
        "[headers]",
    ]
    lines += [f'"{header}" = "{stable}"' for header, stable in sorted(forwards.items())]
    lines += ["", "# What only the headers of newer releases have -> the first with it.", "[new]"]
    for name in sorted(functions):
        first = next(t for t in trees if name in first_releases(t / OPS, NAMES[0][1]))
        lines += _new(name, first, trees)
    for stable in sorted(set(forwards.values())):
        first = next(tree for tree in trees if (tree / stable).is_file())
        lines += _new(f'"{stable}"', first, trees)
    for kind, sources in (("names", NAMES), ("methods", METHODS)):
        for header, pattern, *prefix in sources:
            by_release: dict[Release, list[str]] = defaultdict(list)
            for name, came in first_releases(newest / header, pattern).items():
                is_call = kind == "methods" and name.startswith("torch_")
                if came > BASE and not name.startswith("_") and not is_call:
                    by_release[came].append(f'"{"".join(prefix)}{name}"')
            for came, names in sorted(by_release.items()):
                lines += ["", "[[younger]]", f'since = "{written(came)}"', f'source = "{header}"']
                lines += [f"{kind} = [", *(f"  {name}," for name in sorted(set(names))), "]"]
    return "\n".join(lines) + "\n"


def _new(name: str, first: Path, trees: list[Path]) -> list[str]:
    return [] if first == trees[0] else [f'{name} = "{release_of(first)}"']


def main() -> int:
    """Write the file; with `--check`, say whether it is as the headers have it."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if not arguments:
        raise SystemExit(__doc__)
    text = table([Path(argument) for argument in arguments])
    if "--check" in sys.argv:
        return int(TARGET.read_text("utf-8") != text)
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
