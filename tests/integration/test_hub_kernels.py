"""The real `kernels` client loads kernels from the Hub of `tests/support/hub`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.hub.fixture import HubBench

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("need_torch")]
VARIANT = "build/torch-cpu"
UPLOAD = """
from huggingface_hub import HfApi
api = HfApi()
api.create_repo("org/twice", repo_type="kernel", exist_ok=True)
api.create_branch("org/twice", branch=arguments[1], repo_type="kernel", exist_ok=True)
api.upload_folder(repo_id="org/twice", folder_path=arguments[0], repo_type="kernel",
                  revision=arguments[1])
answer("sent")
"""
LOAD = """
import torch
from kernels import get_kernel
kernel = get_kernel("org/twice", version=int(arguments[0]))
answer([kernel.twice(torch.ones(3)).tolist(), kernel.VERSION])
"""


def kernel(root: Path, version: int) -> Path:
    """A kernel in Python alone, as a builder lays it out."""
    folder = root / f"v{version}" / VARIANT
    folder.mkdir(parents=True)
    metadata = {
        "name": "twice",
        "id": f"_twice_cpu_v{version}",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "__init__.py").write_text("from ._twice import VERSION, twice\n")
    code = f"VERSION = {version}\n\n\ndef twice(x):\n    return x * 2\n"
    (folder / "_twice.py").write_text(code)
    (folder / "table.bin").write_bytes(bytes(range(256)))  # one that goes through LFS
    return folder.parents[1]


@pytest.fixture
def published(hub: HubBench, tmp_path: Path) -> HubBench:
    for version in (1, 2):
        assert hub.python(UPLOAD, str(kernel(tmp_path, version)), f"v{version}") == "sent"
    hub.log.clear()
    return hub


def test_get_kernel(published: HubBench) -> None:
    assert published.python(LOAD, "1", token=None) == [[2.0, 2.0, 2.0], 1]
    assert published.python(LOAD, "2", token=None) == [[2.0, 2.0, 2.0], 2]
    assert all(record.is_known for record in published.log.records)
    assert len(published.log.matching("GET /api/organizations/org/overview")) == 2
    assert all("kernels/" in r.agent for r in published.log.matching("/refs"))
    error = published.python(LOAD, "3", token=None)
    assert error["text"] == "Version 3 not found, available versions: 1, 2"
