"""Refresh `kbuild/checks/data/torch_shims.json` from the headers of Torch releases.

    python scripts/refresh_torch_shims.py [--check] INCLUDE_FOLDER...

Give the `include` folders of several releases, as kbuild keeps them in its store
(`kbuild toolchain list`), oldest first. A shim function has the release of the
`TORCH_VERSION_2_x_0` section that declares it, in any of the trees. Without one it has that of the
first tree that declares it, and `base` in the oldest tree.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

TARGET = Path(__file__).parent.parent / "kbuild/checks/data/torch_shims.json"
HEADERS = (
    "torch/csrc/stable/c/*.h",
    "torch/csrc/inductor/aoti_torch/c/*.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_*.h",
)
SECTION = re.compile(r"#\s*if\s+TORCH_FEATURE_VERSION\s*>=\s*TORCH_VERSION_(\d+)_(\d+)_\d+")
CONDITION = re.compile(r"#\s*(if|ifdef|ifndef|endif)\b")
EXPORTED = re.compile(r"AOTI_TORCH_EXPORT\b[^;{(]*?\b(\w+)\s*\(")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
BASE = "base"


def declared(include: Path) -> dict[str, str]:
    """Shim function -> release of its section, `base` outside of one."""
    return {
        name: section
        for pattern in HEADERS
        for header in sorted(include.glob(pattern))
        for section, text in sections(COMMENT.sub("", header.read_text("utf-8")))
        for name in EXPORTED.findall(text)
    }


def sections(text: str) -> Iterator[tuple[str, str]]:
    """(release, text) of each stretch of a header; conditions nest."""
    stack: list[str] = []
    kept: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        if opened := SECTION.match(line.strip()):
            stack.append(f"{opened[1]}.{opened[2]}")
        elif condition := CONDITION.match(line.strip()):
            if condition[1] != "endif":
                stack.append(stack[-1] if stack else BASE)
            elif stack:
                stack.pop()
        elif not line.startswith("#"):
            kept[stack[-1] if stack else BASE].append(line)
    return ((release, "\n".join(lines)) for release, lines in kept.items())


def release_of(include: Path) -> str:
    """`2.13` as the headers say it."""
    text = (include / "torch/headeronly/version.h").read_text("utf-8")
    major, minor = (
        re.search(rf"TORCH_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR")
    )
    if major is None or minor is None:
        raise SystemExit(f"{include}: its version.h names no release")
    return f"{major[1]}.{minor[1]}"


def order(release: str) -> tuple[int, ...]:
    """Releases as numbers; `base` is before all."""
    return () if release == BASE else tuple(int(part) for part in release.split("."))


def came(name: str, trees: list[tuple[str, dict[str, str]]]) -> str:
    """The release that brought a function; later headers may guard what older ones did not."""
    first = next(number for number, (_, names) in enumerate(trees) if name in names)
    guards = [names[name] for _, names in trees if names.get(name, BASE) != BASE]
    seen = trees[first][0]
    if guards:
        return min([*guards, seen], key=order)
    return BASE if first == 0 else seen


def document(folders: list[Path]) -> dict[str, object]:
    """Which release brought each function, and which took it away."""
    trees = sorted(((release_of(f), declared(f)) for f in folders), key=lambda t: order(t[0]))
    since = {name: came(name, trees) for _, names in trees for name in names}
    gone = {
        name: later
        for (_, before), (later, after) in pairwise(trees)
        for name in before.keys() - after.keys()
    }
    by_release: dict[str, list[str]] = defaultdict(list)
    for name, release in sorted(since.items()):
        by_release[release].append(name)
    return {
        "source": "torch/csrc/{stable,inductor/aoti_torch} of Torch "
        + ", ".join(release for release, _ in trees),
        "newest": trees[-1][0],
        "since": {release: by_release[release] for release in sorted(by_release, key=order)},
        "gone": dict(sorted(gone.items())),
    }


def main() -> int:
    """Write the file; with `--check`, say whether it is stale."""
    folders = [Path(argument) for argument in sys.argv[1:] if argument != "--check"]
    if not folders:
        print(__doc__)
        return 2
    text = json.dumps(document(folders), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        same = TARGET.read_text("utf-8") == text
        print(f"{TARGET.name} is {'up to date' if same else 'stale'}")
        return 0 if same else 1
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
