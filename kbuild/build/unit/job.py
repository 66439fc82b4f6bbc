"""One unit from its command line to its exit status: cache, memory, compiler, log."""

from __future__ import annotations

import os
import sys
import time

from kbuild.build.unit import EXIT_INPUTS_CHANGED, EXIT_OUT_OF_TIME, compiler, inputs
from kbuild.build.unit.cache import TORCH_PREFIX, PeakHistory, UnitCache
from kbuild.build.unit.command import CompileCommand, source_key, unit_key
from kbuild.build.unit.compiler import CompileAttempts
from kbuild.build.unit.inputs import UnitInputs
from kbuild.system.cache import report_trouble_to
from kbuild.system.unit_settings import append_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from kbuild.build.unit.compiler import CompilerResult
    from kbuild.build.unit.precompiled import PrecompiledHeaders
    from kbuild.system.cache import EntryLock
    from kbuild.system.unit_settings import LauncherSettings, LogValue

    CacheOutcome = Literal["hit", "miss", "off"]
    """The object came from the cache, was compiled and stored, or was compiled and not stored."""


class UnitCompilation:
    """The compilation of one unit: cache, lock, compiler, log."""

    def __init__(self, settings: LauncherSettings, language: str, argv: list[str]) -> None:
        self._settings = settings
        self._command = CompileCommand(argv, language, os.getcwd())
        self._tokens = compiler.JobserverTokens(compiler.jobserver_pipe(os.environ))
        self._is_compilation = bool(self._command.source and self._command.object)
        self._object = self._command.absolute(self._command.object)
        self._expected: list[str] = []
        """Files that the compiler is expected to read, known from an earlier compilation."""
        self._began = time.time()
        self._unit: UnitCache | None = None
        self._record: dict[str, LogValue] = {}
        report_trouble_to(self._warn)

    def run(self) -> int:
        """Take the object from the cache, or compile it; return the exit status for ninja."""
        diagnostics = self._from_cache()
        if diagnostics is not None:
            return self._deliver(diagnostics)
        unit = self._unit
        # Variants and other builds may want the same object: one process compiles it, others wait.
        lock = unit.lock() if unit and not unit.refusal else None
        try:
            diagnostics = self._wait_for_peer(lock) if lock is not None else None
            return self._compile() if diagnostics is None else self._deliver(diagnostics)
        finally:
            if lock is not None:
                lock.release()

    def _wait_for_peer(self, lock: EntryLock) -> bytes | None:
        """Wait for another process that compiles the same object; None if this one must compile."""
        try:
            if lock.try_acquire():
                return None
            self._tokens.lend(lock.wait, self._settings.is_over)
        except OSError as error:
            self._warn(f"the object cache cannot be locked: {error}")
            return None
        # None if the other process failed: this one compiles then.
        return self._from_cache()

    def _deliver(self, diagnostics: bytes) -> int:
        self._inputs.record(self._object, self._unit.paths if self._unit else ())
        self._print(diagnostics)
        self._log("hit", self._began, time.time())
        return 0

    def _compile(self) -> int:
        """Compile; once more if an input changed meanwhile: either state may have been read."""
        if self._is_compilation:
            self._expected = self._expected_inputs()
        for is_last in (False, True):
            ended = None if self._settings.is_over() else self._start_compiler()
            if ended is None:
                break
            read = self._inputs.read() if self._is_compilation and ended.status == 0 else []
            changed = self._inputs.changed(read) if self._is_compilation else ""
            if not changed:
                self._print(ended.messages)
                if self._is_compilation and ended.status == 0:
                    self._inputs.record(self._object, read)
                self._store_result(ended, read)
                return ended.status
            self._record["changed"] = changed
            self._expected = read or self._expected
            if is_last:
                # Leave nothing that could be taken for the object of these inputs.
                for path in (self._object, self._command.absolute(self._command.depfile)):
                    if os.path.isfile(path):
                        os.unlink(path)
                name = changed.removeprefix(f"{self._settings.root}/")
                message = f"`{name}` changed each time that {self._name} was compiled"
                self._print(f"kbuild: error: {message}\n".encode("utf-8", "surrogateescape"))
                self._log("off", ended.start, ended.end, EXIT_INPUTS_CHANGED)
                return EXIT_INPUTS_CHANGED
        return self._refused()

    def _expected_inputs(self) -> list[str]:
        """The files that an object of this unit was made from before."""
        try:
            known = [
                path
                for path, was in inputs.read_recorded_inputs(self._object).items()
                if was is not None
            ]
        except (OSError, ValueError):
            known = []
        # The first input on record is the object itself.
        return [*known[1:], *(self._unit.expected() if self._unit else ())]

    def _prepare(self) -> PrecompiledHeaders | None:
        """Identify the files that the compiler is about to read, whatever was known of them before.

        Returns:
            The precompiled headers; None if the unit is compiled without.
        """
        if not self._is_compilation:
            return None
        self._inputs = UnitInputs(self._settings, self._command, os.environ)
        self._inputs.expect(self._expected)
        try:
            self._unit = self._open_cache()
        except OSError:  # the source has gone: the compiler will say so
            self._unit = None
        return self._precompiled() if self._unit and not self._unit.refusal else None

    def _precompiled(self) -> PrecompiledHeaders | None:
        if not self._settings.headers:
            return None
        from kbuild.build.unit.precompiled import PrecompiledHeaders  # imports a lot

        headers = PrecompiledHeaders(self._settings, self._command, os.environ, self._inputs)
        return headers if headers.is_possible else None

    def _open_cache(self) -> UnitCache | None:
        """The unit in the object cache; None where another tool caches, or nobody."""
        settings, command = self._settings, self._command
        if not settings.cache or settings.tool or command.refusal:
            return None
        return UnitCache(settings, command, os.environ, self._inputs)

    def _from_cache(self) -> bytes | None:
        """Deliver the object from the cache; inputs are identified anew."""
        try:
            self._inputs = UnitInputs(self._settings, self._command, os.environ)
            self._unit = self._open_cache()
            diagnostics = self._unit.fetch() if self._unit and not self._unit.refusal else None
            self._inputs.files.save()
        except Exception as error:  # noqa: BLE001 - a failing cache is a warning, never a failure
            self._warn(f"the object cache cannot be read: {error}")
            return None
        return diagnostics

    def _start_compiler(self) -> CompilerResult | None:
        attempts = CompileAttempts(
            self._settings, self._command, self._tokens, self._record, self._warn, self._prepare
        )
        ended = attempts.perform(self._history.largest(*self._keys))
        if ended is not None and attempts.killed is not None:
            self._tell_of_kill(attempts.killed.peak, ended)
        return ended

    def _tell_of_kill(self, first: int, ended: CompilerResult) -> None:
        message = f"the system killed the compiler of {self._name} (peak {first / 1024:.1f} GB); "
        message += "it was retried alone"
        if ended.was_killed:
            message += " and killed again: this machine has too little memory for it"
        self._record["killed"] = message
        self._print(f"kbuild: {message}\n".encode())

    def _store_result(self, ended: CompilerResult, read: list[str]) -> None:
        outcome: CacheOutcome = "off"
        why = ""
        if ended.status == 0 and self._settings.cache:
            try:
                outcome, why = self._stored(ended, read)
                used, seconds = bool(self._record.get("precompiled")), ended.end - ended.start
                self._history.record(self._keys, ended.peak, seconds, precompiled=used)
            except Exception as error:  # noqa: BLE001 - a failing cache is a warning
                self._warn(f"the object cache cannot be written: {error}")
        self._record |= {"user": ended.user, "system": ended.system, "peak": ended.peak, "why": why}
        self._log(outcome, ended.start, ended.end, ended.status)

    def _stored(self, ended: CompilerResult, read: list[str]) -> tuple[CacheOutcome, str]:
        """Store the object; return the outcome, and the reason if it is not kept."""
        if self._unit is None or self._unit.refusal:
            why = self._unit.refusal if self._unit else self._command.refusal
            return "off", why or self._settings.tool
        why = self._unit.store(ended.messages, read)
        self._inputs.files.save()
        return ("off", why) if why else ("miss", "")

    @property
    def _keys(self) -> tuple[str, str]:
        # After a change of flags, the peak of the same source is closer than a language's default.
        return unit_key(self._command), source_key(self._command)

    @property
    def _history(self) -> PeakHistory:
        # Without a cache, the peaks are known as long as this run lasts.
        return PeakHistory(self._settings.cache or self._settings.run)

    @property
    def _name(self) -> str:
        source = self._command.absolute(self._command.source)
        return source.removeprefix(f"{self._settings.root}/")

    def _refused(self) -> int:
        self._print(b"kbuild: not started, the time budget is over\n")
        return EXIT_OUT_OF_TIME

    def _print(self, message: bytes) -> None:
        sys.stderr.buffer.write(message)
        sys.stderr.flush()

    def _log(self, outcome: CacheOutcome, start: float, end: float, status: int = 0) -> None:
        headers = self._unit.headers if self._unit else []
        torch = sum(1 for header in headers if header.startswith(TORCH_PREFIX))
        known: dict[str, LogValue] = {
            "unit": self._name,
            "variant": self._settings.variant,
            "language": self._command.language,
            "start": start,
            "end": end,
            "status": status,
            "cache": outcome,
            "headers": len(headers),
            "torch": torch,
            "archs": self._command.archs,
        }
        if self._unit and self._unit.sizes:
            read = (
                size for name, size in self._unit.sizes.items() if name.startswith(TORCH_PREFIX)
            )
            known["kib"] = sum(read) // 1024
        self._append(known | self._record)

    def _warn(self, text: str) -> None:
        self._append({"warning": text})

    def _append(self, record: dict[str, LogValue]) -> None:
        try:
            append_record(self._settings.log, record)
        except OSError as error:
            self._print(f"kbuild: the log of units cannot be written: {error}\n".encode())
