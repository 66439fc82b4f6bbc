"""FlyDSL: pins, targets and requests; nothing is compiled."""

from __future__ import annotations

import pytest

from kbuild.ops.language import LANGUAGES

FLYDSL = LANGUAGES.get("flydsl")
PIN = ("flydsl==0.4.2",)


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        (("flydsl>=0.4",), 'write `toolchain = "flydsl==0.4.2"`'),
        (("flydsl==0.4.1",), "pins flydsl 0.4.1; kbuild supports only flydsl==0.4.2"),
    ],
)
def test_other_releases_are_refused(pins, words):
    assert words in FLYDSL.unsupported_reason(pins)


@pytest.mark.parametrize(
    ("backend", "archs", "targets", "notes"),
    [
        ("rocm", None, ["gfx90a", "gfx942", "gfx1100"], []),
        ("rocm", ["gfx942", "gfx803"], ["gfx942"], ["gfx803: flydsl 0.4.2 is not known"]),
        ("cuda", None, [], ["FlyDSL does not compile for cuda"]),
    ],
)
def test_targets(backend, archs, targets, notes):
    resolved = FLYDSL.targets(backend, archs, None, PIN)
    assert [target.arch for target in resolved.targets] == targets
    assert [note.startswith(start) for note, start in zip(resolved.notes, notes, strict=True)] == [
        True
    ] * len(notes)


def test_the_environment_is_pinned():
    assert FLYDSL.unsupported_reason(PIN) is None
    assert all("==" in pin for pin in FLYDSL.requirements(PIN))
    assert FLYDSL.variables({"arch": "gfx942"})["FLYDSL_GPU_ARCH"] == "gfx942"
