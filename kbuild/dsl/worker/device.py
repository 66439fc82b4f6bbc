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
    """A question with several possible answers."""

    answers: tuple[str, ...]
    among: str
    """The things between which the answers differ, for messages."""
    hint: str
    file: str
    """File of the author's that asked first."""
    line: int


class TargetDevice:
    """The device that is compiled for."""

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        """Take the facts of `device_facts`; none while a DSL itself is imported."""
        self.facts: Mapping[str, Any] = facts or {}
        self.is_author: Callable[[str], bool] = lambda _: False
        """True for names of the author's files; refusals point to lines of these."""
        self.asked: list[str] = []
        """Questions whose answers differ between archs."""
        self.refused: list[RefusalError] = []
        """All refusals, also those that the author's code has caught."""
        self.importing = False
        self.model: dict[str, int] = {}
        """Question -> index of the answer to give, if there are several."""
        self.doubts: dict[str, Doubt] = {}
        """Questions with several answers that were asked during the import."""

    @property
    def backend(self) -> str:
        """`cuda`, `hip`, or empty for the CPU and without a device."""
        backend = str(self.facts.get("backend", ""))
        return "" if backend == "cpu" else backend

    def ask(self, question: str) -> TargetDevice:
        """Record the question and return the device."""
        if self.facts and question not in self.asked:
            self.asked.append(question)
        return self

    def gpu(self, question: str) -> TargetDevice:
        """Record the question and return the device, which must be a GPU with known facts.

        Raises:
            RefusalError: it is no GPU.
        """
        return self.some_gpu(question)

    def some_gpu(self, question: str) -> TargetDevice:
        """Record the question and return the device, which must be a GPU of any arch.

        Raises:
            RefusalError: it is no GPU.
        """
        if not self.ask(question).backend:
            self.refuse(f"`{question}` needs a GPU, but the kernel is not compiled for one")
        return self

    def answer(self, question: str, text: str) -> str:  # noqa: ARG002 - others may keep it
        """Return the answer to a question that could have others."""
        return text

    def refuse(self, message: str, hint: str = _HINT, at: tuple[str, int] = ("", 0)) -> NoReturn:
        """Raise a RefusalError at the author's line; it is effective even if the author catches it.

        `at` is the place to use if no line of the author's is running.
        """
        refusal = RefusalError(message, hint=hint)
        here = self.line()
        refusal.file, refusal.line = here if here[0] else at
        self.refused.append(refusal)
        raise refusal

    def line(self) -> tuple[str, int]:
        """File and line of the author's code that is running."""
        frame = sys._getframe()  # noqa: SLF001 - the documented way to a caller
        while frame is not None:
            if self.is_author(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return "", 0

    @property
    def arch(self) -> str:
        """Arch in the form of `build.toml`."""
        return str(self.facts.get("arch", ""))

    def capability(self) -> tuple[int, int]:
        """Compute capability: major and minor."""
        major, minor = self.facts["capability"]
        return major, minor


current = TargetDevice()


def set_current(device: TargetDevice) -> None:
    """Set the device of the current request."""
    global current  # noqa: PLW0603 - one request is answered at a time
    current = device


class UnknownValue:
    """A value that is unknown at build: it can be passed on, but no decision can depend on it."""

    def __init__(self, path: str, why: str = "") -> None:
        # The line is for refusals that arise in a library to which the author passed the value.
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

    # `__hash__` too: a look-up in a dictionary or `lru_cache` is a decision.
    __bool__ = __len__ = __iter__ = __contains__ = __hash__ = _decide
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _decide
    __int__ = __index__ = __float__ = __complex__ = __str__ = __format__ = __bytes__ = _decide
    __trunc__ = __floor__ = __ceil__ = __fspath__ = _decide

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Refuse an author's query of the class; other callers get UnknownValue."""
        caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - the documented way to a caller
        return self._decide() if current.is_author(caller) else UnknownValue


for _name in _OPERATORS:
    for _prefix in ("__", "__r"):
        setattr(UnknownValue, f"{_prefix}{_name}__", UnknownValue._computed)  # noqa: SLF001 - this module's own


def common_answer(question: str, values: Sequence[str], among: str = "") -> Any:
    """Return the answer of the arch's devices.

    If answers differ, the first is used while a source is imported; `SourceModules` repeats the
    import with the others and compares the results.

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
    """An answer that differs between devices of an arch; computed values are UnknownValue."""


def device_dependent(question: str) -> DeviceValue:
    """Placeholder for a value that differs between devices of an arch."""
    return DeviceValue(question, f"differs among the devices that run code for {current.arch}")


class TorchDeviceProperties:
    """Result of `torch.cuda.get_device_properties()`, as far as it holds for a whole arch."""

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
    """Torch's properties of the device."""
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
    """Name of the arch's devices."""
    return common_answer(f"{question}.name", current.gpu(question).facts["names"])


def device_index(question: str) -> int:
    """Index of the device: there is one."""
    current.some_gpu(question)
    return 0


def _is_available(question: str) -> bool:
    return bool(current.ask(question).backend)


def _device_count(question: str) -> int:
    return int(_is_available(question))


def _capability(question: str) -> tuple[int, int]:
    return current.gpu(question).capability()


def has_bfloat16(question: str) -> bool:
    """True: every device of the arch has bfloat16; a refusal if it would be emulated."""
    device = current.gpu(question)
    if device.backend == "cuda" and device.capability() < (8, 0):
        device.refuse(f"`{question}` depends on an emulation on {device.arch}")
    return True


def torch_releases(stub_release: str) -> list[str]:
    """Return Torch's releases that the code may run with; a source sees the first one.

    A variant runs with several releases, so a source is imported with each of them, as if devices
    differed. `stub_release` is the one whose names the stub of Torch has.
    """
    question = "torch.__version__"
    releases = list(dict.fromkeys([stub_release, *current.facts.get("torch", ())]))
    if current.ask(question).importing and len(releases) > 1:
        _doubt(question, releases, TORCH_RELEASES, f"decide it {_LATER}")
    at = current.model.get(question, 0)
    return releases[at:] + releases[:at]


def runtime_release(backend: str) -> Any:
    """`torch.version.cuda` or `.hip`; None for the other vendor's devices."""
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
"""Functions of `torch` that ask about the device -> functions that answer."""
