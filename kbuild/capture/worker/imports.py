"""What an author's modules are told of the GPU while they are imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton

from kbuild.capture.programs import CaptureError
from kbuild.capture.worker.calls import note_question, noted_questions
from kbuild.capture.worker.runs import RunDevice


class _Release:
    """`torch.version.cuda` or `.hip` where it is not None: which one it is, no variant knows."""

    def __init__(self, vendor: str) -> None:
        self._vendor = vendor

    def __bool__(self) -> bool:
        return True

    def _refuse(self, *_: Any) -> Any:
        raise CaptureError(f"decides on the release of `torch.version.{self._vendor}`")

    __getattr__ = __getitem__ = __str__ = __format__ = __iter__ = __len__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __contains__ = _refuse


@contextmanager
def told_vendor(is_author: Callable[[str], bool], device: RunDevice) -> Iterator[None]:
    """`torch.version.cuda` and `.hip` say whose the GPU is, to the author's files alone."""

    def told(vendor: str, original: Any, _: Any) -> Any:
        if not is_author(sys._getframe(1).f_code.co_filename):  # noqa: SLF001 - the documented way
            return original
        device.asked = True
        return _Release(vendor) if device.is_amd == (vendor == "hip") else None

    version: Any = torch.version
    kind, known = version.__class__, vars(version)
    answers = {name: property(partial(told, name, known[name])) for name in ("cuda", "hip")}
    version.__class__ = type("_Version", (kind,), answers)
    try:
        yield
    finally:
        version.__class__ = kind


class AskedAtImportError(CaptureError):
    """A module asks for the GPU when it is imported: each arch has its own constants."""


@contextmanager
def at_import(folders: tuple[str, ...], device: RunDevice) -> Iterator[None]:
    """Modules in folders are told of a GPU.

    Args:
        folders: of the author's sources; others get Torch's and Triton's own answers.
        device: with `capability`, 90 for 9.0, and `shared`, the bytes of shared memory that a
            block can have; without them, asking is an error.

    Raises:
        AskedAtImportError: a module asked, whatever it did then.
    """
    refused: list[str] = []
    unknown = (torch.cuda.get_device_name, torch.cuda.device_count)

    def answered(original: Callable[..., Any], answer: Any, *args: Any, **more: Any) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001 - the documented way
        while frame.f_code.co_filename == __file__ and frame.f_back is not None:
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(folders):
            return original(*args, **more)
        if original in unknown:
            note_question(frame)
        elif answer is None:
            refused.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            raise RuntimeError("there is no GPU")
        return answer

    drivers = type(triton.runtime.driver)
    own = drivers.active
    facts = {} if device.is_amd else device.facts
    active = partial(answered, lambda: own.fget(triton.runtime.driver), _driver(facts))
    questions = {**_questions(facts), "is_available": True, "device_count": 1}
    questions |= {"current_device": 0, "get_device_name": "GPU"}
    noted = noted_questions(lambda file: file.startswith(folders))
    with ExitStack() as stack, told_vendor(lambda file: file.startswith(folders), device), noted:
        for name, answer in questions.items():
            value = partial(answered, getattr(torch.cuda, name), answer)
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(drivers, "active", property(lambda _: active())))
        yield
    if refused:
        raise AskedAtImportError("asks for the GPU when it is imported", refused[0])


def _questions(device: Mapping[str, int]) -> dict[str, Any]:
    """Functions of `torch.cuda` -> what is the same for every GPU of an arch."""
    if not device:
        return {"get_device_capability": None, "get_device_properties": None}
    capability = divmod(device["capability"], 10)
    properties = SimpleNamespace(
        major=capability[0], minor=capability[1], warp_size=32,
        shared_memory_per_block_optin=device["shared"],
    )  # fmt: skip
    return {"get_device_capability": capability, "get_device_properties": properties}


def _driver(device: Mapping[str, int]) -> Any:
    """Triton's driver, as far as that is the same for every GPU of an arch."""
    if not device:
        return None
    target = SimpleNamespace(backend="cuda", arch=device["capability"], warp_size=32)
    properties = {"max_shared_mem": device["shared"], "warpSize": 32}
    return SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        utils=SimpleNamespace(get_device_properties=lambda _=0: properties),
    )
