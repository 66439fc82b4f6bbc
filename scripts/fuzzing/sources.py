"""Readers of sources: C++, Python, and the texts that cards are made from."""

from __future__ import annotations

import json
from pathlib import Path

from fuzzing import seeds
from fuzzing.common import put, text_of


def cxx(data: bytes, _folder: Path) -> object:
    from kbuild.advice.tokens import tokens
    from kbuild.checks.ops_cxx import check_ops_cxx

    text = text_of(data)
    return check_ops_cxx({"a.cpp": text}, "TORCH_EXTENSION_NAME"), tokens(text)


def includes(data: bytes, folder: Path) -> object:
    from kbuild.includes import Includes
    from kbuild.sourcetree import SourceTree

    put(folder, "a.cpp", data)
    found, folders = Includes(SourceTree(folder)), ("include",)
    named = [found.mention(("a.cpp",), folders, word) for word in ("at", "TORCH_EXTENSION_NAME")]
    return found.reachable(("a.cpp",), folders), named


def python(data: bytes, folder: Path) -> object:
    """All checks of a variant with that module, and its surface."""
    from kbuild.checks.base import Output
    from kbuild.checks.examination import Wanted, examine
    from kbuild.surface import read_surface
    from kbuild.variant import Variant

    root = folder / "torch-cpu"
    put(root, "__init__.py", data)
    put(root, "other.py", b"from . import *\nfrom ._ops import ops\n")
    document = {**seeds.METADATA, "digest": None}
    put(root, "metadata.json", json.dumps(document).encode())
    wanted = Wanted(slow=False)
    checks = [check for check in wanted.checks() if check.group in ("code", "files")]
    examine(Output(root, Variant.parse("torch-cpu")), checks, wanted)
    return read_surface(root, "my_kernel")


def docstring(data: bytes, _folder: Path) -> object:
    from kbuild.card.docstring import markdown_of

    return markdown_of(text_of(data))


def card(data: bytes, folder: Path) -> object:
    from kbuild.card.blocks import split
    from kbuild.card.frontmatter import with_front_matter
    from kbuild.card.write import read_card

    text = read_card(put(folder, "CARD.md", data))
    return list(split(with_front_matter(text, "MIT", "\n")))


def version_file(data: bytes, folder: Path) -> object:
    """An installed Torch's version.py, read in the interpreter that has it."""
    from kbuild.toolchains.probe import assignments

    return assignments(str(put(folder, "version.py", data)))
