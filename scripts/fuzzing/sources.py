"""Readers of sources: C++, Python, and the texts that cards are made from."""

from __future__ import annotations

import json
from pathlib import Path

from fuzzing import seeds
from fuzzing.common import put, text_of


def cxx(data: bytes, _folder: Path) -> object:
    from kbuild.checks.pointers import pointer_findings
    from kbuild.sources.cxx import cxx_tokens

    text = text_of(data)
    return list(pointer_findings({"a.cpp": text})), cxx_tokens(text)


def includes(data: bytes, folder: Path) -> object:
    from kbuild.sources.includes import IncludeGraph
    from kbuild.system.sourcetree import SourceTree

    put(folder, "a.cpp", data)
    found, folders = IncludeGraph(SourceTree(folder)), ("include",)
    named = [found.mention(("a.cpp",), folders, word) for word in ("at", "TORCH_EXTENSION_NAME")]
    return found.reachable(("a.cpp",), folders), named


def python(data: bytes, folder: Path) -> object:
    """All checks of a variant with that module, and its public API."""
    from kbuild.checks.base import Output
    from kbuild.checks.report import CheckSelection, run_selected_checks
    from kbuild.project.variant import Variant
    from kbuild.publish.card.public_api import read_public_api

    root = folder / "torch-cpu"
    put(root, "__init__.py", data)
    put(root, "other.py", b"from . import *\nfrom ._ops import ops\n")
    document = {**seeds.METADATA, "digest": None}
    put(root, "metadata.json", json.dumps(document).encode())
    wanted = CheckSelection(slow=False)
    checks = [check for check in wanted.checks() if check.group in ("code", "files")]
    run_selected_checks(Output(root, Variant.parse("torch-cpu")), checks, wanted)
    return read_public_api(root)


def docstring(data: bytes, _folder: Path) -> object:
    from kbuild.publish.card.sections import docstring_markdown

    return docstring_markdown(text_of(data))


def card(data: bytes, folder: Path) -> object:
    from kbuild.publish.card.fill import read_card
    from kbuild.publish.card.markdown import split_blocks, with_front_matter

    text = read_card(put(folder, "CARD.md", data))
    return list(split_blocks(with_front_matter(text, "MIT", "\n")))


def version_file(data: bytes, folder: Path) -> object:
    """An installed Torch's version.py, read in the interpreter that has it."""
    from kbuild.toolchains.probe import assignments

    return assignments(str(put(folder, "version.py", data)))
