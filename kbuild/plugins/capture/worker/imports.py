"""Imports an author's function, and answers what modules ask about the GPU meanwhile.

The answers are those of a build, see `kbuild.dsl.worker.device`: what holds for every GPU of
an arch, and values that may be kept but not decided on.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn
from unittest import mock

import torch
import triton

from kbuild.dsl.worker import device as devices
from kbuild.dsl.worker import triton_internals
from kbuild.dsl.worker.doubts import fresh_process, judge_doubts, module_facts
from kbuild.dsl.worker.protocol import RefusalError
from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.calls import noted_questions
from kbuild.plugins.capture.worker.runs import RunDevice

_OWN = (str(Path(__file__).parent), str(Path(devices.__file__).parent))
_TORCH, _TRITON = (str(Path(module.__file__ or "").parent) for module in (torch, triton))
_STANDARD = str(Path(os.__file__).parent)
_UNKNOWN = (
    *("mem_get_info", "memory_allocated", "memory_reserved", "get_arch_list", "utilization"),
    *("get_gencode_flags", "clock_rate", "current_stream", "default_stream"),
)
"""Functions of `torch.cuda` that have no answer for all GPUs of an arch."""
_GUARD = torch.cuda._DeviceGuard  # noqa: SLF001 - authors use it
GUARD_METHODS = (
    *((kind, n) for kind in (torch.cuda.device, _GUARD) for n in ("__enter__", "__exit__")),
    *((kind, "__init__") for kind in (torch.cuda.device, torch.cuda.device_of, _GUARD)),
)
"""Methods of contexts that change the device, replaced in their classes: authors have aliases."""
_COUNTS = ("multi_processor_count", "['multiprocessor_count']")
"""Ends of the questions that `sm_count()` answers in an op."""


class AskedAtImportError(CaptureError):
    """A module asks for the GPU when it is imported: each arch has its own constants."""


class _Answer(str):
    """A text that differs on other GPUs or releases."""

    __slots__ = ("question",)
    question: str


class _SeveralAnswers:
    """A text with several possible values: code may test that it is there, and nothing else."""

    def __init__(self, question: str) -> None:
        self._question = question

    def __bool__(self) -> bool:
        return True

    def _refuse(self, *_: Any) -> Any:
        file, line = devices.current.line()
        message = f"decides on `{self._question}`, which has several answers"
        raise CaptureError(message, f"{file}:{line}" if file else "")

    __getattr__ = __getitem__ = __str__ = __format__ = __iter__ = __len__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __contains__ = _refuse


class ImportDevice(devices.TargetDevice):
    """The GPU that modules ask about; its refusals are errors of the capture."""

    def __init__(self, device: RunDevice, folders: Sequence[str], generated: bool) -> None:
        super().__init__({"releases": [""], **device.facts})
        self._vendor, self._generated = "hip" if device.is_amd else "cuda", generated
        self.folders = tuple(folders)
        self.is_author = lambda file: file.startswith(self.folders)
        self.errors: list[CaptureError] = []
        """Errors of the import, also those that the author's code has caught."""

    @property
    def backend(self) -> str:
        """`cuda` or `hip`."""
        return self._vendor

    def gpu(self, question: str) -> devices.TargetDevice:
        """The device itself, if its arch is known.

        Raises:
            AskedAtImportError: the arch is not known yet.
        """
        if "capability" not in self.facts:
            self._raise(AskedAtImportError("asks for the GPU when it is imported"))
        return self.ask(question)

    def refuse(self, message: str, hint: str = "", at: tuple[str, int] = ("", 0)) -> NoReturn:  # noqa: ARG002
        """Raise an error at the author's line, which counts also where it is caught."""
        self._raise(CaptureError(f"cannot be captured: {message}"), at)

    def answer(self, question: str, text: str) -> str:
        """The text, marked as an answer."""
        answer = _Answer(text)
        answer.question = question
        return answer

    def _raise(self, error: CaptureError, at: tuple[str, int] = ("", 0)) -> NoReturn:
        file, line = self.line()
        file, line = (file, line) if file else at
        error.place = f"{file}:{line}" if file else ""
        self.errors.append(error)
        raise error

    def answers_to(self, file: str) -> bool:
        """True if code asks for the author: the author's files, or a library that they import.

        Torch and Triton ask for themselves, and so does a DSL that writes kernels.
        """
        return self.is_author(file) or not (self._generated or file.startswith((_TORCH, _TRITON)))

    def modules(self) -> dict[str, ModuleType]:
        """The author's modules that have been imported."""
        return {
            name: module
            for name, module in sorted(sys.modules.items())
            # Not `module.__file__`: an object in `sys.modules` may compute its attributes.
            if self.is_author(str(getattr(module, "__dict__", {}).get("__file__")))
        }

    def facts_of_modules(self, answer: str) -> Mapping[str, str]:
        """See `module_facts`."""
        return module_facts(self.modules(), answer)


def imported_function(
    path: str, folders: Sequence[str], device: RunDevice, *, generated: bool = False
) -> Any:
    """The function `module:name`, with modules that have asked for the GPU of `device`.

    Where a question has several answers, modules are imported with each.

    Raises:
        AskedAtImportError: the arch matters, and is not known.
        CaptureError: what comes of an import differs among answers, or is not known.
    """
    own = ImportDevice(device, folders, generated)

    def repeated(model: dict[str, int], answer: str) -> dict[str, Any]:
        own.model = model
        try:
            with _answers_at_import(own, device):
                _load(path)
        except Exception as error:  # noqa: BLE001 - the author's code
            place = getattr(error, "place", "").rpartition(":")
            refused = {"message": str(error), "file": place[0], "line": place[2]}
            return {"refusal": refused}
        return {"facts": own.facts_of_modules(answer)}

    with fresh_process(repeated) as fresh:
        with _answers_at_import(own, device):
            function = _load(path)
        try:
            judge_doubts(own, own.facts_of_modules, fresh)
        except RefusalError as error:
            place = f"{error.file}:{error.line}" if error.file else ""
            raise CaptureError(f"cannot be captured: {error.message}", place) from None
    for module in own.modules().values():
        names = vars(module)
        for name, value in list(names.items()):
            if type(value) is _Answer:
                # A constant that other GPUs have with another value: a decision on it would be
                # wrong there.
                names[name] = _SeveralAnswers(value.question)
    return function


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


@contextmanager
def answer_vendors(is_author: Callable[[str], bool], device: RunDevice) -> Iterator[None]:
    """Let `torch.version.cuda` and `.hip` name the GPU's vendor, to the author's files alone."""

    def answer_vendor(vendor: str, original: Any, _: Any) -> Any:
        if not is_author(sys._getframe(1).f_code.co_filename):  # noqa: SLF001 - the documented way
            return original
        device.asked = True
        if devices.current.importing:
            return devices.runtime_release(vendor)
        is_own = device.is_amd == (vendor == "hip")
        return _SeveralAnswers(f"torch.version.{vendor}") if is_own else None

    version: Any = torch.version
    kind, known = version.__class__, vars(version)
    answers = {
        name: property(partial(answer_vendor, name, known[name])) for name in ("cuda", "hip")
    }
    # Attributes that a module has cannot be computed; properties of its class can.
    version.__class__ = type("_Version", (kind,), answers)
    try:
        yield
    finally:
        version.__class__ = kind


@contextmanager
def _answers_at_import(own: ImportDevice, device: RunDevice) -> Iterator[None]:
    """Answer modules' questions about a GPU while they are imported, in this context.

    Raises:
        CaptureError: a question has no answer, whatever the module did then.
    """
    devices.set_current(own)
    own.importing, own.errors = True, []
    try:
        noted = noted_questions(own.is_author)
        with ExitStack() as stack, answer_vendors(own.answers_to, device), noted:
            for owner, name, value in _stand_ins(own):
                stack.enter_context(mock.patch.object(owner, name, value))
            yield
    except Exception as error:
        if own.errors:
            raise own.errors[0] from error
        raise
    finally:
        own.importing = False
    if own.errors:
        raise own.errors[0]


def _stand_ins(own: ImportDevice) -> Iterator[tuple[Any, str, Any]]:
    """Replacements while modules are imported: an object, a name, and the value."""
    for path, question in devices.QUESTIONS.items():
        yield _constant_answer(own, path, question)
    for name in _UNKNOWN:
        yield _constant_answer(
            own, f"cuda.{name}", lambda asked: devices.UnknownValue(f"{asked}()")
        )
    yield _constant_answer(own, "accelerator.current_accelerator", lambda _: torch.device("cuda"))
    yield torch.cuda, "_lazy_init", partial(_refuse_use, torch.cuda._lazy_init, own)  # noqa: SLF001
    yield from ((guard, name, lambda *_, **__: None) for guard, name in GUARD_METHODS)
    for kind in triton_internals.LAUNCHERS:
        yield kind, "run", triton_internals.refuse_launch
    drivers, driver = type(triton.runtime.driver), triton_internals.TargetDriver()
    original = drivers.active

    def active(config: Any) -> Any:
        # Triton's own functions ask its driver for whoever calls them.
        file = _asker(_TRITON)
        return driver if own.answers_to(file) else original.fget(config)

    yield drivers, "active", property(active)


def _constant_answer(
    own: ImportDevice, path: str, answer: Callable[[str], Any]
) -> tuple[Any, str, Any]:
    """Replace a function of Torch by one that answers while modules are imported.

    An alias of it lasts: whenever it is called, it calls what the name stands for by then.
    """
    module, _, name = f"torch.{path}".rpartition(".")
    owner = importlib.import_module(module)
    original = getattr(owner, name)

    @wraps(original)
    def answer_constant(*args: Any, **more: Any) -> Any:
        now = getattr(owner, name)
        if now is not answer_constant:
            return now(*args, **more)
        return answer(f"torch.{path}") if own.answers_to(_asker()) else original(*args, **more)

    return owner, name, answer_constant


def _refuse_use(original: Callable[[], None], own: ImportDevice) -> None:
    """Replace the function that starts CUDA's driver: the author's code may not call it."""
    if not own.line()[0]:
        original()
        return
    own.refuse(
        "it uses the GPU when it is imported; put that into a function or below a main guard"
    )


def _asker(*libraries: str) -> str:
    """The file of the asking code, without frames of kbuild, Python's library and `libraries`."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller
    while frame is not None:
        file = frame.f_code.co_filename
        # `site-packages` lies below the folder of the standard library.
        is_standard = file.startswith((_STANDARD, "<frozen")) and "-packages" not in file
        if not is_standard and not file.startswith((*_OWN, *libraries)):
            return file
        frame = frame.f_back
    return ""


def device_counts(names: Mapping[str, Any]) -> list[str]:
    """The names in a module that stand for the number of multiprocessors."""
    return [
        name
        for name, value in names.items()
        if type(value) is devices.DeviceValue and repr(value).rstrip(">").endswith(_COUNTS)
    ]
