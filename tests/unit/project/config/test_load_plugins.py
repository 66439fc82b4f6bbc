"""A backend of another distribution brings its keys, its table and its archs with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from kbuild.plan.project import backend_catalog
from kbuild.project.config.load import load
from kbuild.project.config.model import BackendGeneral, KernelSection
from kbuild.project.config.schema import json_schema
from kbuild.system.errors import ConfigError
from kbuild.system.sourcetree import SourceTree

TEXT = """\
[general]
name = "relu"
version = 1
edition = 5
license = "MIT"
backends = ["vulkan"]

[general.vulkan]
driver = "mesa"

[torch]

[kernel.relu]
backend = "vulkan"
depends = ["torch"]
src = ["a.cpp"]
spirv = ["1.6"]
"""
FILES = {"torch-ext/relu/__init__.py": "__all__ = []\n", "a.cpp": ""}


class VulkanGeneral(BackendGeneral):
    driver: str | None = None


class VulkanSection(KernelSection):
    backend: Literal["vulkan"]
    spirv: tuple[str, ...] = ()


def check_spirv(arch):
    if not arch.startswith("1."):
        raise ValueError(f"`{arch}` is not a SPIR-V version; write e.g. `1.6`")


@pytest.fixture
def larger():
    own = backend_catalog()
    return replace(
        own,
        kernel_sections={**own.kernel_sections, "vulkan": VulkanSection},
        general_sections={**own.general_sections, "vulkan": VulkanGeneral},
        backends=(*own.backends, "vulkan"),
        arch_keys={**own.arch_keys, "vulkan": ("spirv", check_spirv)},
    )


def test_its_keys_are_known(project, larger):
    found = load(SourceTree(project(TEXT, FILES)), lambda _: larger)
    section = found.file.kernel["relu"]
    assert isinstance(section, VulkanSection)
    assert section.spirv == ("1.6",)
    table = found.file.general.backend_general("vulkan")
    assert isinstance(table, VulkanGeneral)
    assert table.driver == "mesa"


def test_its_archs_are_checked(project, larger):
    root = project(TEXT.replace("1.6", "2.0"), FILES)
    with pytest.raises(ConfigError, match=r"toml:17: kernel\.relu\.spirv: `2\.0` is not a SPIR-V"):
        load(SourceTree(root), lambda _: larger)


def test_the_schema_knows_it(larger):
    assert "spirv" in json_schema(larger)["$defs"]["VulkanSection"]["properties"]


def test_without_it_the_file_is_refused(said):
    assert "`vulkan` is not a backend" in said(TEXT, FILES)
