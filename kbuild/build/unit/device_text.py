"""The preprocessed text of one device pass, without headers of Torch that kernels do not need.

What is left out are whole files, taken out of the text that nvcc's preprocessor wrote with all of
them: macros have done their work by then. `kbuild.build.unit.device_passes` says when the rest may
stand for the whole.
"""

from __future__ import annotations

import os
import re

from kbuild.build.unit.inputs import read_file

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_HASH = b"\n# "
_MARKER = re.compile(rb'\d+ "((?:[^"\\]|\\.)*)"[ \d]*')
"""The rest of `# 12 "file" 3`, a line marker."""
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_DEVICE = re.compile(rb"__attribute__\s*\(\(\s*_*(?:device|global|constant|shared|managed)_*\s*\)")
"""What nvcc's macros `__device__` and so on expand to."""
_WORD = re.compile(rb"[A-Za-z_]\w*")
_SYSTEM = b"3"
"""The flag of a header that was not found by `-I`."""

_WHOLE = frozenset(
    (
        b"ATen/ATen.h", b"ATen/Functions.h", b"ATen/Context.h", b"ATen/MethodOperators.h",
        b"torch/all.h", b"torch/extension.h", b"torch/library.h", b"torch/python.h",
        b"torch/script.h", b"torch/torch.h", b"torch/types.h",
    )
)  # fmt: skip
"""Headers of Torch that include most of the others: what they include is not followed."""
_NAMES_OF_TORCH = b"torch/types.h"
"""Of this one, only what it defines itself is kept."""
_NEEDED = (
    b"cuda_runtime.h", b"ATen/core/ATen_fwd.h", b"ATen/core/Tensor.h", b"ATen/core/grad_mode.h",
    b"ATen/Dispatch.h", b"c10/util/Exception.h", _NAMES_OF_TORCH,
)  # fmt: skip
"""What host code beside kernels mostly uses of them."""
_FACTORIES = b"torch/csrc/autograd/generated/variable_factories.h"
_OF_FACTORIES = (
    b"ATen/core/LegacyTypeDispatch.h", b"ATen/detail/CUDAHooksInterface.h",
    b"ATen/DeviceAccelerator.h", b"ATen/Context.h",
)  # fmt: skip
"""What `_FACTORIES` needs beside its own includes."""
_QUALIFIED = re.compile(rb"\b(?:at|torch|c10|pybind11)((?:\s*::\s*\w+)+)")
_BY_ARGUMENT = frozenset((b"device_of",))
"""Functions of Torch that are called without a namespace."""
_OPERATOR = re.compile(rb"\b(at|torch)\s*::\s*(\w+)")
_TENSOR = b"ATen/core/TensorBody.h"
_METHOD = re.compile(
    rb"^inline [^\n{;]*\bTensor::\w+\([^\n]*\{\n\s*return at::_ops::[^\n]*;\n\}", re.MULTILINE
)
"""Definitions that nothing but the operators' own headers makes valid."""
_OF_TORCH = (b"torch/", b"ATen/", b"c10/")


class DeviceText:
    """The text, its files, and which of them are left out."""

    def __init__(self, text: bytes, torch: Sequence[bytes], toolkit: Sequence[bytes]) -> None:
        """`torch` and `toolkit` are the folders of their headers, as the compiler names them."""
        self._torch = tuple(folder + b"/" for folder in torch)
        self._toolkit = tuple(folder + b"/" for folder in toolkit)
        self._segments = list(_split(text))
        self._kept = self._closure()
        self._write()

    def _write(self) -> None:
        """Sort the segments."""
        import hashlib

        lean: list[bytes] = []
        left_out: list[bytes] = []
        varying: dict[bytes, list[bytes]] = {}
        same = hashlib.sha256()
        for marker, name, text in self._segments:
            if name and name not in self._kept:
                left_out.append(text)
                same.update(marker + text)
                continue
            kept = text
            if name.endswith(_TENSOR):
                kept = _METHOD.sub(lambda match: b"\n" * match[0].count(b"\n"), text)
            if kept == text and name.startswith((*self._torch, *self._toolkit)):
                varying.setdefault(name, []).append(text)
            else:
                same.update(marker + text)
            lean.append(marker + kept)
        self.lean = b"".join(lean)
        """What is left."""
        self.left_out = b"".join(left_out)
        self.key = same.hexdigest()
        """The same for architectures that share all text but that of `varying`."""
        self.varying = {name: b"\n".join(texts) for name, texts in varying.items()}
        """Text of the toolkit and of Torch, by file, which may have its variants."""

    def left_out_words(self) -> set[bytes]:
        """All identifiers of what was left out."""
        return set(_WORD.findall(self.left_out))

    def is_like(self, varying: dict[bytes, bytes], words: set[bytes]) -> bool:
        """Whether what was left out, with these words, cannot meet what varies.

        `varying` is that of an architecture with the same key. Where declarations differ, none of
        the names that they declare may occur in what was left out; in a namespace that this does
        not mention, they may.
        """
        differing: set[Declaration] = set()
        for name in {*varying, *self.varying}:
            here, there = self.varying.get(name, b""), varying.get(name, b"")
            if here != there:
                differing ^= set(declarations(here)) ^ set(declarations(there))
        mentioned = {scope: self._mentions(scope) for scope in {scope for scope, _, _ in differing}}
        return not any(
            mentioned[scope] and not _declared(head).isdisjoint(words)
            for scope, head, _ in differing
        )

    def _mentions(self, scope: tuple[bytes, ...]) -> bool:
        """Whether what was left out names a namespace; two levels tell it from others."""
        between = rb"\s*(?:::|\{\s*(?:inline\s+)?namespace\b)\s*"
        pattern = between.join(map(re.escape, scope[:2]))
        return not scope or re.search(rb"\b" + pattern + rb"\b", self.left_out) is not None

    def _closure(self) -> set[bytes]:
        """The files that are kept, and what they include but for `_WHOLE`."""
        files = _IncludedFiles((name for _, name, _ in self._segments), self._torch)
        kept: set[bytes] = set()
        wanted = [*self._wanted(files), *(f for header in _NEEDED for f in files.find(header))]
        while wanted:
            while wanted:
                path = wanted.pop()
                if path in kept:
                    continue
                kept.add(path)
                if files.relative(path) != _NAMES_OF_TORCH:
                    headers = (name for name in _included(path) if name not in _WHOLE)
                    wanted += [found for name in headers for found in files.find(name)]
            wanted = self._first_of_missing(kept)
        return kept

    def _first_of_missing(self, kept: set[bytes]) -> list[bytes]:
        """The first files with names that the author has of Torch, and no kept file has."""
        missing, found = set(self._named), list[bytes]()
        for _, name, text in self._segments if missing else ():
            if name in kept and name not in self._authors:
                missing.difference_update(_WORD.findall(text))
        for _, name, text in self._segments if missing else ():
            if name.startswith(self._torch) and name not in kept:
                words = missing.intersection(_WORD.findall(text))
                found += [name] if words else []
                missing -= words
        return found

    def _wanted(self, files: _IncludedFiles) -> list[bytes]:
        """The author's files, the toolkit's, those of Torch with device code, and what is named."""
        wanted: list[bytes] = []
        named: set[tuple[bytes, bytes]] = set()
        self._named: set[bytes] = set()
        self._authors: set[bytes] = set()
        for marker, name, text in self._segments:
            is_system = _SYSTEM in marker.rpartition(b'"')[2]
            if name.startswith(self._toolkit):
                wanted.append(name)
            elif name.startswith(self._torch):
                if _DEVICE.search(text):
                    wanted.append(name)
            elif not is_system:
                wanted.append(name)
                self._authors.add(name)
                named.update(_OPERATOR.findall(text))
                for qualified in _QUALIFIED.findall(text):
                    self._named.update(_WORD.findall(qualified))
                self._named |= {word for word in _BY_ARGUMENT if word in text}
        return [*wanted, *self._operators(files, named)]

    def _operators(self, files: _IncludedFiles, named: set[tuple[bytes, bytes]]) -> list[bytes]:
        """Headers of the operators that the author calls as functions."""
        words = {word for _, word in named}
        factories = files.find(_FACTORIES)
        text = b"".join(text for _, name, text in self._segments if name in factories)
        asked = {word for space, word in named if space == b"torch"}
        if not asked.isdisjoint(re.findall(rb"\b(\w+)\(", text)):
            words.update(word for _, word in _OPERATOR.findall(text))
            factories += [path for name in _OF_FACTORIES for path in files.find(name)]
        else:
            factories = []
        found = (files.find(b"ATen/ops/" + word + b".h") for word in sorted(words))
        return [*factories, *(path for paths in found for path in paths)]


class _IncludedFiles:
    """The files of a text, by the names that `#include` has of them."""

    def __init__(self, paths: Iterable[bytes], torch: tuple[bytes, ...]) -> None:
        self._torch = torch
        self._of_torch: dict[bytes, list[bytes]] = {}
        self._twins: dict[bytes, list[bytes]] = {}
        self._others: dict[bytes, list[bytes]] = {}
        for path in dict.fromkeys(paths):
            relative = self.relative(path)
            if relative:
                self._of_torch.setdefault(relative, []).append(path)
                self._twins.setdefault(relative.rpartition(b"/")[2], []).append(path)
                continue
            parts = path.split(b"/")
            for count in range(1, len(parts)):
                self._others.setdefault(b"/".join(parts[-count:]), []).append(path)

    def relative(self, path: bytes) -> bytes:
        """The name of one of Torch's headers; empty for others."""
        of = max((f for f in self._torch if path.startswith(f)), key=len, default=b"")
        return path[len(of) :] if of else b""

    def find(self, name: bytes) -> list[bytes]:
        """Files that the name may mean.

        GCC reads one of two equal files with `#pragma once`, of which Torch has some: one of the
        same last name then stands for it.
        """
        found = [*self._of_torch.get(name, ()), *self._others.get(name, ())]
        if not found and name.startswith(_OF_TORCH):
            found = self._twins.get(name.rpartition(b"/")[2], [])
        return found


def _split(text: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """(line marker, file, text) from each line marker to the next."""
    body, *lines = (b"\n" + text).split(_HASH)
    name = marker = b""
    for line in lines:
        head, newline, rest = line.partition(b"\n")
        match = _MARKER.fullmatch(head)
        if match is None:  # a line of the author
            body += _HASH + line
            continue
        yield marker, name, (body + b"\n")[1:]
        marker, name, body = b"# " + head + b"\n", match[1], newline + rest
    yield marker, name, body[1:]


def _included(path: bytes) -> Iterator[bytes]:
    """What a file may include, whatever conditions there are."""
    try:
        raw = read_file(os.fsdecode(path))
    except OSError:  # `<built-in>` and the like
        return
    for quote, name in _INCLUDE.findall(raw):
        yield name
        if quote == b'"':
            yield name.rpartition(b"/")[2] if name.startswith(b".") else name


_STRING = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_ATTRIBUTE = re.compile(rb"\b(?:__attribute__|__declspec|alignas|__align__)\s*\(+[^()]*\)*")
_PIECE = re.compile(rb"[{};]|[^{};]+")
_SCOPE = re.compile(rb'(?:inline )?namespace\b(?: __attribute__.*\)\))?([\w: ]*)|extern ""')
_INITIALISERS = re.compile(rb"\)\s*:(?!:).*", re.DOTALL)
"""Of a constructor."""
_VALUE = re.compile(rb"=\s*(?:\[.*|[\w:<>, ]*)$", re.DOTALL)
_CLASS = re.compile(rb"\b(?:struct|class|union|enum(?: class| struct)?)\s+([A-Za-z_]\w*)[^()=]*")
_NAMES = (
    re.compile(rb"([A-Za-z_]\w*)\s*\("),
    re.compile(rb"\b(?:struct|class|union|enum|using|typedef)\s+([A-Za-z_]\w*)"),
    re.compile(rb"([A-Za-z_]\w*)\s*(?:=|\[|<|$)"),
)
_NO_NAMES = frozenset(
    b"__attribute__ __declspec __align__ alignas asm __asm__ const decltype enum false noexcept"
    b" operator requires sizeof static_assert struct template true typename union".split()
)
Declaration = tuple[tuple[bytes, ...], bytes, bytes]
"""Namespaces around it; its words before a body; the body of a class or an initialiser."""


def declarations(text: bytes) -> Iterator[Declaration]:
    """What a text declares outside of functions and classes, whose members are their body."""
    head, body, depth = b"", b"", 0
    scopes: list[tuple[bytes, ...]] = [()]
    for piece in _PIECE.findall(_STRING.sub(b'""', text)):
        scope = None if depth or piece != b"{" else _SCOPE.fullmatch(b" ".join(head.split()))
        if scope is not None:
            inner = (scope[1] or b"").replace(b"inline ", b"").split(b"::")
            scopes.append((*scopes[-1], *(name.strip() for name in inner if name.strip())))
            head = b""
            continue
        if depth or piece == b"{":
            depth += (piece == b"{") - (piece == b"}")
            body += piece
            if depth or not _is_function(head):
                continue
            head, body = _INITIALISERS.sub(b")", head), b""
        elif piece not in {b"}", b";"}:
            head += piece
            continue
        words = b" ".join(head.split())
        if words:
            yield scopes[-1], words, b" ".join(body.split())
        if piece == b"}" and not words and len(scopes) > 1:
            scopes.pop()
        head = body = b""


def _is_function(head: bytes) -> bool:
    return b"(" in _ATTRIBUTE.sub(b"", head) and not _VALUE.search(head)


def _declared(head: bytes) -> set[bytes]:
    """Names that a declaration may declare; all its words where none is found."""
    plain = _ATTRIBUTE.sub(b"", head)
    of_class = _CLASS.search(plain)
    if of_class and of_class.end() == len(plain):
        return {of_class[1]}
    names = {name for pattern in _NAMES for name in pattern.findall(plain)} - _NO_NAMES
    return names or set(_WORD.findall(plain))
