"""The sections on the page about languages are what kbuild reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli

from kbuild.ops.expression.nodes import FUNCTIONS, LIST_QUERIES, QUERIES
from tests.support.sections import HEAD, read, text_of

PAGE = (Path(__file__).parents[3] / "docs/reference/dsl-kernels.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_there_are_examples():
    assert len(BLOCKS) == 16


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_are_read(block):
    data = tomli.loads(block)
    if "language" in block:
        assert read(block).issues == ()
        return
    more = ", Tensor a" * ("a_desc" in block)
    more += ", str activation, float eps, int? window, str mode" * ("activation" in block)
    keys = {
        "schema": f'"k(Tensor x, Tensor weight{more}) -> Tensor"',
        "shapes": '{ x = ["...", "N"], weight = ["N"], out = "x" }',
        "grid": None if "launch" in block else "[1]",
        "configs": "[{ BLOCK_M = 16, BLOCK_K = 16 }]" if "BLOCK_M" in block else None,
    }
    text = text_of(**{**keys, **{key: None for key in data if key not in ("configs", "kernel")}})
    assert read(text + block).issues == (), HEAD


def test_every_function_is_explained():
    explained = set(re.findall(r"`(\w+)\(", PAGE.split("## Expressions")[1].split("\n## ")[0]))
    assert explained == {*FUNCTIONS, *QUERIES, LIST_QUERIES[0], "dtype"}


def test_every_key_is_explained():
    from kbuild.project.config.file_model import OpSection
    from kbuild.project.config.model_errors import keys_of

    keys = set(keys_of(OpSection))
    assert {key for key in keys if f"`{key}" not in PAGE and f"\n{key} =" not in PAGE} == set()
