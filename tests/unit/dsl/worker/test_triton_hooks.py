"""Hooks of `@triton.autotune`, run with stand-ins for arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.dsl.worker.triton_hooks import hooks_of

ARGUMENTS = ("x", "out", "lock", "a_desc", "N", "BLOCK", "DIM")


def config(hook: Any = None, **constants: Any) -> Any:
    options = {"num_warps": 4}
    return SimpleNamespace(
        kwargs=constants, pre_hook=hook, all_kwargs=lambda: {**constants, **options}
    )


def tuner(**more: Any) -> Any:
    return SimpleNamespace(**more)


def of(*hooks: Any) -> dict[str, Any]:
    configs = [config(hook, BLOCK=64 * at) for at, hook in enumerate(hooks, 1)]
    return hooks_of([tuner(reset_to_zero=[], restore_value=[])], configs, ARGUMENTS)


def only(hook: Any) -> dict[str, Any]:
    """What it does to tensors."""
    said = of(hook)
    assert said["problems"] == []
    found: dict[str, Any] = said["configs"][0][0]
    return found


def test_values():
    def hook(nargs):
        nargs["out"].zero_()
        nargs["lock"].fill_(float("-inf"))
        if nargs["x"] is not None:
            nargs["x"][...] = 1.5
        nargs["a_desc"].base.fill_(True)

    fills = [["out", 0], ["lock", "-inf"], ["x", 1.5], ["a_desc", True]]
    assert only(hook) == {"fills": fills, "blocks": []}


def test_blocks_of_descriptors(monkeypatch):
    class Descriptor:
        pass

    monkeypatch.setattr("kbuild.dsl.worker.triton_hooks._descriptor", lambda: Descriptor)

    def hook(nargs):
        if not isinstance(nargs["a_desc"], Descriptor):
            nargs["out"].zero_()
            return
        nargs["a_desc"].block_shape = [nargs["BLOCK"] // 2, nargs["DIM"]]

    tensors, descriptors = of(hook)["configs"][0]
    assert tensors == {"fills": [["out", 0]], "blocks": []}
    assert descriptors == {"fills": [], "blocks": [["a_desc", [32, "DIM"]]]}


def _asks(nargs):
    if nargs["N"] > 3:
        nargs["out"].zero_()


def _shape(nargs):
    nargs["out"][: nargs["x"].shape[0]] = 0


def _part(nargs):
    nargs["out"][:3] = 0


def _copies(nargs):
    nargs["out"].copy_(nargs["x"])


def _own_copy(nargs):
    nargs["out"].copy_(nargs["out"].clone())


def _sets(nargs):
    nargs["x"].data = 3


def _fails(nargs):
    nargs["nothing"].zero_()


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (_asks, "asks for `N`, which is known only at run time"),
        (_shape, "asks for `x.shape`"),
        (_part, "writes to parts of `out`"),
        (_copies, "copies into `out`"),
        (_own_copy, "copies into `out`"),
        (_sets, "sets `x.data`"),
        (_fails, "says KeyError: 'nothing'"),
        (lambda nargs: nargs["out"].fill_(nargs["N"]), "fills `out` with `N`"),
        (lambda nargs: nargs["out"].fill_("a"), "fills `out` with 'a'"),
        (lambda nargs: setattr(nargs["x"], "block_shape", [1.5]), "to 1.5"),
    ],
)
def test_what_cannot_be_followed_is_said_with_its_line(hook, words):
    (problem,) = of(hook)["problems"]
    assert words in problem
    assert f"test_triton_hooks.py:{hook.__code__.co_firstlineno}" in problem
    assert "a candidate's `pre_hook`" in problem


def test_another_ir():
    one = config(BLOCK=64)
    one.ir_override = "own.ttgir"
    said = hooks_of([tuner()], [one], ARGUMENTS)
    assert said["problems"] == ["a candidate's `ir_override` is 'own.ttgir'"]


class TestTuner:
    def test_reset_and_restore(self):
        said = hooks_of(
            [tuner(reset_to_zero=["out", "lock"], restore_value=["x"])], [config()], ARGUMENTS
        )
        assert said["reset"] == [["out", 0], ["lock", 0]]
        assert said["problems"] == []

    def test_hooks_of_the_authors(self):
        kept = {}

        def pre(nargs, reset_only=False):
            nargs["out"].fill_(float("nan"))
            if not reset_only:
                kept["x"] = nargs["x"].clone()

        def post(nargs, exception):
            nargs["x"].copy_(kept["x"])

        one = tuner(
            user_defined_pre_hook=True, user_defined_post_hook=True, pre_hook=pre, post_hook=post
        )
        said = hooks_of([one], [config()], ARGUMENTS)
        assert said["reset"] == [["out", "nan"]]
        assert said["problems"] == []

    def test_hooks_that_cannot_be_followed(self):
        one = tuner(
            user_defined_pre_hook=True,
            user_defined_post_hook=True,
            pre_hook=lambda nargs: nargs["x"].normal_(),
            post_hook=lambda nargs, exception: nargs["out"].zero_(),
        )
        first, second = hooks_of([one], [config()], ARGUMENTS)["problems"]
        assert "`pre_hook` asks for `x.normal_`" in first
        assert "`post_hook` overwrites the result" in second
