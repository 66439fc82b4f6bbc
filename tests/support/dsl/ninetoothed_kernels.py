"""Kernels in NineToothed, compiled as a build compiles them, without a project around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli

from kbuild.ops.binding import bind
from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES
from kbuild.ops.section import read_section
from kbuild.ops.unit import ImageTarget
from kbuild.project.config.issue import IssueCollector
from tests.support.dsl.compiled import DslKernel, DslProject

PINS = ("ninetoothed==0.26.0", "triton==3.9.0")


def compile_wide(shop: DslProject, project: Path, name: str, target: str) -> tuple[UnitImage, ...]:
    """What a project's first op runs where 32 bits are too few: its first candidate's images."""
    section = tomli.loads((project / "build.toml").read_text())["kernel"][name]
    shop.write({path: (project / path).read_text() for path in section["src"]})
    return compile_section(shop, name, section, target, wide=True)


def compile_section(
    shop: DslProject, name: str, section: Mapping[str, Any], target: str, *, wide: bool
) -> tuple[UnitImage, ...]:
    """Images of the first candidate of a section's first op, whose sources are written."""
    reading = read_section(name, section)
    assert reading.issues == ()
    kernel = DslKernel("ninetoothed", PINS, tuple(section["src"]), name=name)
    functions = shop.compiler.describe(kernel, shop.folder)
    language, place = LANGUAGES.get("ninetoothed"), IssueCollector(())
    op = language.complete(reading.ops[0], functions, place)
    assert op is not None, place.issues
    (launch,) = op.launches
    bound = bind(op, launch, {name: functions[name].parameters}, place)
    assert bound is not None, place.issues
    first = replace(op, launches=(replace(launch, candidates=launch.candidates[:1]),))
    units = language.expand(first, (ImageTarget.parse(target),))
    wanted = [(unit, bound) for unit in units if dict(unit.constants)["wide"] == wide]
    return shop.compiler.compile(kernel, shop.folder, wanted, note=shop.notes.append)
