"""What the objects of a build tree were made from, as their launchers recorded it.

A build tool compares times. A file that was replaced by an older one is no reason for it to compile
again, and of a header that was edited while units compiled it does not know which state each of
them read. So before it runs, objects go whose inputs are others now; and after it ran, those that
disagree with the others about a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.build.unit.inputs import SUFFIX, recorded
from kbuild.filestate import Look, identify, look

_OBJECTS, _DRAFTS = "CMakeFiles/*.dir/**/*.o", "CMakeFiles/*.dir/**/*.new"


@dataclass(frozen=True)
class Present:
    """Files as they are now, each looked at once."""

    _looks: dict[str, Look] = field(default_factory=dict)
    _identities: dict[str, Look] = field(default_factory=dict)

    def holds(self, path: str, then: Look) -> bool:
        """True when the file still is what it was."""
        if path not in self._looks:
            self._looks[path] = look(path)
        now = self._looks[path]
        if now is None or then is None:
            return now is then
        return now[:4] == then[:4] or (now[0] == then[0] and self.content(path) == then[4])

    def content(self, path: str) -> str:
        """The hash of what the file holds."""
        if path not in self._identities:
            self._identities[path] = identify(path)
        return _content(self._identities[path])


def drop_stale(tree: Path) -> None:
    """Delete the objects of a build tree whose inputs are not known, or not the same any more.

    What units that were killed were writing goes as well: nobody else builds in this tree.
    """
    for path in tree.glob(_DRAFTS):
        path.unlink(missing_ok=True)
    present = Present()
    for path in tree.glob(_OBJECTS):
        made_from = _recorded(path)
        if not made_from or not all(present.holds(*entry) for entry in made_from.items()):
            drop(path)


def drop(path: Path) -> None:
    """Delete an object, so that it is compiled again."""
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}{SUFFIX}").unlink(missing_ok=True)


@dataclass(frozen=True)
class ObjectInputs:
    """The inputs of all objects of one library, each as its unit read it."""

    units: Mapping[Path, Mapping[str, Look]]
    """Object -> path -> what the file was."""

    def disagreeing(self, generated: Path) -> dict[Path, str]:
        """Objects to compile again, and for each a file of which it read another state.

        Args:
            generated: a folder whose files nobody but kbuild changes: they are what they are now.
        """
        present = Present()
        read: dict[str, set[str]] = {}
        for inputs in self.units.values():
            for path, then in inputs.items():
                read.setdefault(path, set()).add(_content(then))
        suspects = {
            path
            for path, contents in read.items()
            if len(contents) > 1 or path.startswith(f"{generated}/")
        }
        found = {}
        for unit, inputs in self.units.items():
            for path in suspects & inputs.keys():
                if _content(inputs[path]) != present.content(path):
                    found[unit] = path
        return found

    def below(self, root: Path, without: Path) -> Iterator[tuple[str, Look]]:
        """The files below a folder, relative to it, but for those in a folder of it."""
        start, hidden = f"{root}/", f"{without}/"
        for inputs in self.units.values():
            for path, then in inputs.items():
                if path.startswith(start) and not path.startswith(hidden):
                    yield path.removeprefix(start), then


def inputs_of(tree: Path, objects: Iterable[str]) -> ObjectInputs:
    """What these objects of a build tree were made from; without those that have no record."""
    paths = (tree / name for name in objects)
    found = ((path, _recorded(path)) for path in paths)
    return ObjectInputs({path: inputs for path, inputs in found if inputs})


def _recorded(path: Path) -> dict[str, Look]:
    try:
        return recorded(str(path))
    except (OSError, ValueError):
        return {}


def _content(identity: Look) -> str:
    return identity[4] if identity is not None else ""
