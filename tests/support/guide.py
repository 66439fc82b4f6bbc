"""The files that a page of the contributors' guide shows, installed for kbuild to find."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tests.support.command_project import ROOT, write_files

_BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_ENTRY_POINTS = re.compile(r'^\[project\.entry-points\."(.+)"\]\n((?:\w+ = ".+"\n)+)', re.MULTILINE)


def files_of(page: str) -> dict[str, str]:
    """Path -> text of the code blocks with a title."""
    text = (ROOT / "docs" / "contributing" / page).read_text("utf-8")
    return dict(_BLOCK.findall(text))


def install(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """What `pip install` would write for the `pyproject.toml`; the environment that finds it."""
    match = _ENTRY_POINTS.search(files["pyproject.toml"])
    assert match is not None
    group, listed = match[1], match[2].replace('"', "")
    info = {
        "METADATA": "Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n",
        "entry_points.txt": f"[{group}]\n{listed}",
    }
    write_files(folder, files)
    write_files(folder / "plugged-1.0.dist-info", info)
    path = filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": os.pathsep.join(path)}
