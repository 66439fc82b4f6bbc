"""Make's dependency files, as compilers write them and ninja reads them."""

from __future__ import annotations


def parse(text: str) -> list[str]:
    """The paths after the colon, unescaped, in order."""
    _, _, right = _joined(text).partition(": ")
    paths, path = [], ""
    characters = iter(right)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            path += following if following in {" ", "#", "\\", ":"} else f"\\{following}"
        elif character == "$":
            path += character
            next(characters, "")
        elif character.isspace():
            paths.append(path)
            path = ""
        else:
            path += character
    return [path for path in (*paths, path) if path]


def quick(text: str) -> list[str]:
    """`parse`, fast for the usual file in which nothing is escaped."""
    joined = _joined(text)
    if "\\" in joined or "$" in joined:
        return parse(text)
    return joined.partition(": ")[2].split()


def render(target: str, paths: list[str]) -> str:
    """A dependency file: `target` was made from `paths`."""
    return " \\\n ".join((f"{_escaped(target)}:", *map(_escaped, paths))) + "\n"


def _joined(text: str) -> str:
    return text.replace("\\\r\n", " ").replace("\\\n", " ").replace(":\n", ": ")


def _escaped(path: str) -> str:
    for plain, written in ((" ", "\\ "), ("#", "\\#"), ("$", "$$")):
        if plain in path:
            path = path.replace(plain, written)
    return path
