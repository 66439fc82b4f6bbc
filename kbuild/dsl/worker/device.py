"""The answers to a source's questions about the device that its kernels are compiled for.

There is no GPU at build, but sources query one: its capability, its memory, its name. Such a
question is answered from what holds for every device of the arch that is compiled for, and
remembered: what was imported with an answer is good for devices with the same answer alone. What
differs from device to device, such as how many multiprocessors there are, has no answer. It may be
passed on, but no decision can depend on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from kbuild.dsl.worker.protocol import RefusalError

_LATER = "in a function that is not called when the module is imported"
_HINT = "use it in a function that is not called when the kernels' module is imported"
_TOOLKITS = "the Torch builds that the kernel is made for"
TORCH_RELEASES = "the Torch releases that kbuild builds for"
_OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)


@dataclass(frozen=True)
class Doubt:
    """A question that has several answers."""

    answers: tuple[str, ...]
    among: str
    """What the answers differ among."""
    hint: str
    file: str
    """Where it was asked first."""
    line: int


class TargetDevice:
    """The one that is compiled for, as far as it is known."""

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        """With the facts of `device_facts`; without any there is none: a DSL is imported."""
        self.facts: Mapping[str, Any] = facts or {}
        self.is_author: Callable[[str], bool] = lambda _: False
        """Tells the author's files by name; refusals are said at their lines."""
        self.asked: list[str] = []
        """Questions whose answers differ from arch to arch."""
        self.refused: list[RefusalError] = []
        """Also those that the author's code has caught."""
        self.importing = False
        self.model: dict[str, int] = {}
        """Question -> which of several answers is given."""
        self.doubts: dict[str, Doubt] = {}
        """By question; asked while the author's code was imported."""

    @property
    def backend(self) -> str:
        """`cuda`, `hip`, or `` for the CPU and where there is none."""
        backend = str(self.facts.get("backend", ""))
        return "" if backend == "cpu" else backend

    def ask(self, question: str) -> TargetDevice:
        """Itself; remembers the question."""
        if self.facts and question not in self.asked:
            self.asked.append(question)
        return self

    def gpu(self, question: str) -> TargetDevice:
        """Itself, which has to be a GPU whose facts are known; remembers the question.

        Raises:
            RefusalError: it is none.
        """
        return self.some_gpu(question)

    def some_gpu(self, question: str) -> TargetDevice:
        """Itself, which has to be a GPU, whatever its arch is; remembers the question.

        Raises:
            RefusalError: it is none.
        """
        if not self.ask(question).backend:
            self.refuse(f"`{question}` needs a GPU, but the kernel is not compiled for one")
        return self

    def answer(self, question: str, text: str) -> str:  # noqa: ARG002 - others may keep it
        """An answer where others are possible, as the source is given it."""
        return text

    def refuse(self, message: str, hint: str = _HINT, at: tuple[str, int] = ("", 0)) -> NoReturn:
        """Raise a `RefusalError` at the author's line, which counts also where it is caught.

        `at` is where it began, for when none of the author's lines is running.
        """
        refusal = RefusalError(message, hint=hint)
        here = self.line()
        refusal.file, refusal.line = here if here[0] else at
        self.refused.append(refusal)
        raise refusal

    def line(self) -> tuple[str, int]:
        """The author's line that is running."""
        frame = sys._getframe()  # noqa: SLF001 - the documented way to a caller
        while frame is not None:
            if self.is_author(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return "", 0

    @property
    def arch(self) -> str:
        """As `build.toml` writes it."""
        return str(self.facts.get("arch", ""))

    def capability(self) -> tuple[int, int]:
        """Major and minor."""
        major, minor = self.facts["capability"]
        return major, minor


current = TargetDevice()
"""The device of the request that is answered."""


def set_current(device: TargetDevice) -> None:
    """Make it the one that answers."""
    global current  # noqa: PLW0603 - one request is answered at a time
    current = device


class UnknownValue:
    """A value that is unknown at build: it can be passed on, but no decision can depend on it."""

    def __init__(self, path: str, why: str = "") -> None:
        self._path, self._why, self._line = path, why, current.line()

    def __repr__(self) -> str:
        return f"<{self._path}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return UnknownValue(f"{self._path}.{name}", self._why)

    def __getitem__(self, key: object) -> Any:
        return UnknownValue(f"{self._path}[...]", self._why)

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002, D102
        return UnknownValue(f"{self._path}()", self._why)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def _computed(self, *_: Any) -> Any:
        return UnknownValue(self._path, self._why)

    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = _computed

    def _decide(self, *_: Any) -> Any:
        why = self._why or "is not known when a kernel is compiled"
        current.refuse(f"`{self._path}` {why}, and the source depends on it", at=self._line)

    __bool__ = __len__ = __iter__ = __contains__ = __hash__ = _decide
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _decide
    __int__ = __index__ = __float__ = __complex__ = __str__ = __format__ = __bytes__ = _decide
    __trunc__ = __floor__ = __ceil__ = __fspath__ = _decide

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Refused where the author asks which it is; whoever only looks around is told."""
        caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - the documented way to a caller
        return self._decide() if current.is_author(caller) else UnknownValue


for _name in _OPERATORS:
    for _prefix in ("__", "__r"):
        setattr(UnknownValue, f"{_prefix}{_name}__", UnknownValue._computed)  # noqa: SLF001 - this module's own


def common_answer(question: str, values: Sequence[str], among: str = "") -> Any:
    """One of the answers that devices of the arch give.

    Where these differ, the first counts while a source is imported; `Sources` imports it again for
    the others, to see whether it comes to the same.

    Raises:
        RefusalError: they differ, and the source is not being imported.
    """
    if not values:
        return UnknownValue(question, "has no answer for every device of the arch")
    if len(values) > 1:
        among = among or f"the devices that run code for {current.arch}"
        if not current.importing:
            current.refuse(f"`{question}` differs among {among}")
        _doubt(question, values, among, f"decide it from the capability, or {_LATER}")
    return current.answer(question, values[current.model.get(question, 0)])


def _doubt(question: str, values: Sequence[str], among: str, hint: str) -> None:
    current.doubts.setdefault(question, Doubt(tuple(values), among, hint, *current.line()))


class DeviceValue(UnknownValue):
    """An answer that differs from device to device of an arch; what is computed with it is not."""


def device_dependent(question: str) -> DeviceValue:
    """What differs from device to device of an arch."""
    return DeviceValue(question, f"differs among the devices that run code for {current.arch}")


class TorchDeviceProperties:
    """`torch.cuda.get_device_properties()`: what holds for every device of an arch."""

    def __init__(self, known: Mapping[str, Any], names: Sequence[str]) -> None:
        self._known, self._names = known, tuple(names)

    def __getattr__(self, name: str) -> Any:
        if name in self._known:
            return self._known[name]
        if name.startswith("_") or name not in self._names:
            raise AttributeError(name)
        return device_dependent(f"get_device_properties().{name}")

    def __repr__(self) -> str:
        return f"<properties of {current.arch}>"


_OF_TORCH = (
    "name", "major", "minor", "total_memory", "multi_processor_count", "is_integrated",
    "is_multi_gpu_board", "max_threads_per_multi_processor", "max_threads_per_block", "warp_size",
    "regs_per_multiprocessor", "shared_memory_per_block", "shared_memory_per_block_optin",
    "shared_memory_per_multiprocessor", "L2_cache_size", "gcnArchName", "uuid", "pci_bus_id",
    "pci_device_id", "pci_domain_id", "clock_rate", "memory_clock_rate", "memory_bus_width",
)  # fmt: skip


def torch_device_properties(question: str) -> TorchDeviceProperties:
    """As Torch gives them."""
    device = current.gpu(question)
    facts, (major, minor) = device.facts, device.capability()
    known = {"major": major, "minor": minor, "warp_size": facts["warp"], **facts["properties"]}
    if "shared" in facts:
        known["shared_memory_per_block_optin"] = facts["shared"]
    if device.backend == "hip":
        known |= {"gcnArchName": device.arch, "shared_memory_per_block": facts["shared"]}
        del known["shared_memory_per_block_optin"]
    own = [name for name in _OF_TORCH if name != "gcnArchName" or device.backend == "hip"]
    return TorchDeviceProperties({"name": name(question), **known}, own)


def name(question: str) -> Any:
    """What devices of the arch are called."""
    return common_answer(f"{question}.name", current.gpu(question).facts["names"])


def device_index(question: str) -> int:
    """The number of the device: there is one."""
    current.some_gpu(question)
    return 0


def _is_available(question: str) -> bool:
    return bool(current.ask(question).backend)


def _device_count(question: str) -> int:
    return int(_is_available(question))


def _capability(question: str) -> tuple[int, int]:
    return current.gpu(question).capability()


def has_bfloat16(question: str) -> bool:
    """Whether every device of the arch computes with it."""
    device = current.gpu(question)
    if device.backend == "cuda" and device.capability() < (8, 0):
        device.refuse(f"`{question}` depends on an emulation on {device.arch}")
    return True


def torch_releases(stub_release: str) -> list[str]:
    """Torch's releases that the code may run with; the first is the one that a source sees.

    One variant runs with several, so a source is imported with each, as where devices of an arch
    differ. `stub_release` is the one whose names the stub of Torch has.
    """
    question = "torch.__version__"
    releases = list(dict.fromkeys([stub_release, *current.facts.get("torch", ())]))
    if current.ask(question).importing and len(releases) > 1:
        _doubt(question, releases, TORCH_RELEASES, f"decide it {_LATER}")
    at = current.model.get(question, 0)
    return releases[at:] + releases[:at]


def runtime_release(backend: str) -> Any:
    """`torch.version.cuda` or `.hip`: None where the device is another's."""
    device = current.ask(f"torch.version.{backend}")
    if device.backend != backend:
        return None
    return common_answer(f"torch.version.{backend}", device.facts["releases"], _TOOLKITS)


QUESTIONS: Mapping[str, Callable[[str], Any]] = {
    "cuda.is_available": _is_available,
    "cuda.device_count": _device_count,
    "cuda.current_device": device_index,
    "cuda.get_device_capability": _capability,
    "cuda.get_device_properties": torch_device_properties,
    "cuda.get_device_name": name,
    "cuda.is_bf16_supported": has_bfloat16,
    "accelerator.is_available": _is_available,
    "accelerator.device_count": _device_count,
    "accelerator.current_device_index": device_index,
    "utils._triton.has_triton": _is_available,
    "utils._triton.has_triton_package": _is_available,
}
"""Functions below `torch` that ask about the device -> their answers."""
