"""The objects of one variant in the cache that several machines share.

Before ninja starts, objects that the local cache lacks are fetched into it, so that the launchers
find them there. After it, those that were compiled are sent. No launcher knows of it.

    slots/<kk>/<slot>            the records of the latest objects of one command
    objects/<kk>/<key>/<name>    an object and its messages

A slot is a file rather than a folder: some stores cannot list folders, and all of them charge for
it. Of two machines that write a slot at once, one may lose: its object is sent another time.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kbuild.build.unit.cache import PeakHistory, UnitCache
from kbuild.build.unit.command import CompileCommand, source_key, unit_key
from kbuild.build.unit.inputs import FileHashes, UnitInputs
from kbuild.build.unit_log import UnitRecord, read_log
from kbuild.errors import DamagedFileError
from kbuild.runtime.budget import Run
from kbuild.runtime.cache_entries import install_entry, parse_entry, read_entry
from kbuild.runtime.remote_cache import RemoteCache
from kbuild.runtime.unit_settings import read_launcher_settings
from kbuild.runtime.untrusted import MAX_DOCUMENT_BYTES, reading

_BATCH = 16
"""Units that are asked for together: what they save counts before the next ones are asked for."""
_SLOT_RECORDS = 4
"""Records of a slot: objects of as many states of the project's own headers."""
_LAUNCHER = "/kbuild/build/launcher.py"
_KIND = "a list of the shared cache"
_SLOTS = threading.Lock()
"""Held by the thread that changes a slot."""


@dataclass(frozen=True)
class SlotRecord:
    """What an object in the shared cache was made from."""

    key: str
    name: str
    record: bytes
    seconds: float
    """What the compiler took."""

    @property
    def path(self) -> str:
        """Where the object is."""
        return f"objects/{self.key[:2]}/{self.key}/{self.name}"

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON object."""
        text = self.record.decode("utf-8", "surrogateescape")
        return {"key": self.key, "name": self.name, "record": text, "seconds": self.seconds}


def parse_slot(data: bytes | None) -> tuple[SlotRecord, ...]:
    """The records of a slot, the latest first; none where there is no slot.

    Raises:
        DamagedFileError: it is no slot.
    """
    if data is None:
        return ()
    with reading("a slot", _KIND):
        return tuple(
            SlotRecord(
                str(entry["key"]),
                str(entry["name"]),
                str(entry["record"]).encode("utf-8", "surrogateescape"),
                float(entry["seconds"]),
            )
            for entry in json.loads(data)
        )


class RemoteObjects:
    """What one variant's units have to do with the shared cache."""

    def __init__(self, remote: RemoteCache, cache: Path) -> None:
        """`cache` is the local cache folder."""
        self._remote, self._cache = remote, cache
        self._missing: dict[str, tuple[str, CompileCommand]] = {}
        """Key -> slot and command, of the objects that neither cache has."""

    def fetch(self, database: str, environ: Mapping[str, str]) -> None:
        """Fetch the objects that the commands would make and that are not here.

        Args:
            database: ninja's compilation database, as JSON.
            environ: the launchers' variables.
        """
        hashes = FileHashes(str(self._cache / "hashes"))
        missing = list(_missing_units(database, environ, hashes))
        slots = [(unit.slot, unit) for _, unit in missing]
        self._missing |= {unit.key: (unit.slot, command) for command, unit in missing}
        batches = [slots[at : at + _BATCH] for at in range(0, len(slots), _BATCH)]
        asked = [self._requested_slots(batch) for batch in batches[:1]]
        for at, batch in enumerate(batches):
            answers = map(self._remote.receive, asked[at])
            objects = [
                self._requested_object(unit, data)
                for (_, unit), data in zip(batch, answers, strict=True)
            ]
            asked += [self._requested_slots(following) for following in batches[at + 1 : at + 2]]
            for wanted in objects:
                is_here = wanted is not None and self._install(*wanted)
                if not is_here:
                    self._remote.count(hit=False)
        with suppress(OSError):
            hashes.save()  # for the launchers, which look at the same files

    def send(self, units: Iterable[UnitRecord]) -> None:
        """Send what was compiled, in the background, here or meanwhile for another variant."""
        history = PeakHistory(str(self._cache / "units"))
        for unit in units:
            record = Path(unit.record)
            key = record.parent.parent.name + record.parent.name
            if unit.record and unit.cache != "off" and key in self._missing:
                (slot, command), name = self._missing[key], record.stem
                last = history.recall(unit_key(command), source_key(command))
                seconds = (
                    min(unit.seconds, unit.cpu) if unit.cache == "miss" else (last or (0, 0.0))[1]
                )
                self._remote.put(partial(self._files, slot, key, name, seconds))

    def _requested_slots(
        self, batch: Sequence[tuple[str, UnitCache]]
    ) -> list[Future[bytes | None]]:
        return [self._remote.request(_slot_name(slot), MAX_DOCUMENT_BYTES) for slot, _ in batch]

    def _requested_object(
        self, unit: UnitCache, data: bytes | None
    ) -> tuple[SlotRecord, Future[bytes | None]] | None:
        """The object that fits, on its way."""
        try:
            records = parse_slot(data)
            fitting = [
                known for known in records if known.key == unit.key and unit.fits(known.record)
            ]
        except (DamagedFileError, ValueError, IndexError):
            return None
        return (fitting[0], self._remote.request(fitting[0].path)) if fitting else None

    def _install(self, known: SlotRecord, request: Future[bytes | None]) -> bool:
        data = self._remote.receive(request, known.seconds)
        if data is None:
            return False
        try:
            entry = parse_entry(data, f"{known.key}/{known.name}")
            install_entry(self._cache, replace(entry, record=known.record))
        except (DamagedFileError, OSError):
            return False
        self._remote.count(hit=True, received=len(data), saved=known.seconds)
        self._missing.pop(known.key, None)
        return True

    def _files(self, slot: str, key: str, name: str, seconds: float) -> Iterator[tuple[str, bytes]]:
        """The object, then the slot that names it."""
        entry = read_entry(self._cache, key, name)
        own = SlotRecord(key, name, entry.record, round(seconds, 2))
        if self._remote.is_news(own.path):
            yield own.path, entry.without_record().to_bytes()
        with _SLOTS:  # until it is written: several variants may have objects for one
            try:
                known = parse_slot(self._remote.read_now(_slot_name(slot), MAX_DOCUMENT_BYTES))
            except DamagedFileError:
                known = ()
            others = [other for other in known if (other.key, other.name) != (key, name)]
            records = [record.to_json() for record in (own, *others)[:_SLOT_RECORDS]]
            yield _slot_name(slot), json.dumps(records).encode()


def _slot_name(slot: str) -> str:
    return f"slots/{slot[:2]}/{slot[2:]}"


@contextmanager
def shared_objects(
    run: Run, variant: str, environ: Mapping[str, str], database: Callable[[], str]
) -> Iterator[None]:
    """Ninja compiles inside: what it would compile is fetched before, and what it did sent after.

    Args:
        run: without a shared cache, nothing happens.
        variant: the one that is compiled.
        environ: the launchers' variables.
        database: gives ninja's compilation database, as JSON.
    """
    remote = run.remote
    if remote is None or not run.keeps or run.tool or not (remote.is_asked or remote.is_written):
        yield
        return
    objects = RemoteObjects(remote, run.cache)
    objects.fetch(database(), environ)
    try:
        yield
    finally:
        if remote.is_written:
            objects.send(unit for unit in read_log(run.log).units if unit.variant == variant)


def _missing_units(
    database: str, environ: Mapping[str, str], hashes: FileHashes
) -> Iterator[tuple[CompileCommand, UnitCache]]:
    """The units that ninja would compile although their objects could be cached."""
    settings = read_launcher_settings(environ)
    assert settings is not None  # noqa: S101 - they are the launchers' variables
    for command in _commands(database):
        if command.refusal or Path(command.absolute(command.object)).exists():
            continue
        inputs = UnitInputs(settings, command, environ, hashes)
        try:
            unit = UnitCache(settings, command, environ, inputs)
        except OSError:  # a source that is yet to be made
            continue
        if not unit.refusal and not unit.has_fitting_entry():
            yield command, unit


def _commands(database: str) -> Iterator[CompileCommand]:
    """The compilations of ninja's database that go through a launcher."""
    try:
        entries = json.loads(database)
    except ValueError:  # an old ninja
        return
    for entry in entries:
        words = shlex.split(entry["command"])
        at = next((n for n, word in enumerate(words) if word.endswith(_LAUNCHER)), None)
        if at is not None:
            yield CompileCommand(words[at + 2 :], words[at + 1], entry["directory"])
