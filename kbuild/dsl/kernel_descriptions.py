"""Descriptions of the kernel functions in a source, computed once for all variants of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbuild.dsl.compile_environment import (
    CompilableKernel,
    CompileEnvironment,
    SourceSnapshot,
    json_digest,
)
from kbuild.dsl.devices import device_facts
from kbuild.dsl.image_cache import ImageCache, Rejection, claim_future, fulfilling
from kbuild.dsl.worker_client import CompileRequest, WorkerClient
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.language import KernelFunction
from kbuild.ops.steps import Candidate
from kbuild.ops.unit import ImageTarget
from kbuild.system.errors import BuildError


class KernelDescriptions:
    """Asks workers to describe sources. Safe to use from several threads."""

    def __init__(self, client: WorkerClient, cache: ImageCache, folder: Path) -> None:
        """Sources are written below `folder` for workers."""
        self._client, self._cache, self._folder = client, cache, folder
        self._lock = threading.Lock()
        self._described: dict[str, Future[Mapping[str, Any]]] = {}

    def describe(
        self,
        kernel: CompilableKernel,
        place: CompileEnvironment,
        sources: SourceSnapshot,
        targets: Sequence[ImageTarget] = (),
    ) -> Mapping[str, KernelFunction]:
        """See `AotCompiler.describe`."""
        devices = {arch_of_target(t): device_facts(t, kernel.flavour) for t in targets}
        answers = {
            arch: self._answer(kernel, place, sources, device)
            for arch, device in (devices or {"": {}}).items()
        }
        return functions_from_answers(kernel.name, answers)

    def _answer(
        self,
        kernel: CompilableKernel,
        place: CompileEnvironment,
        sources: SourceSnapshot,
        device: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Return the description of the sources for a device; it is computed once."""
        # Most sources ask nothing about the device; one description then serves all of them.
        general = place.description_key(sources)
        with self._lock:
            known = self._described.get(general)
            future, is_ours = claim_future(self._described, json_digest([general, device]))
        if known is not None:
            return known.result()
        if is_ours:
            with fulfilling(future):
                future.set_result(self._description(kernel, place, sources, device))
        answer = future.result()
        if not answer.get("asked"):  # it holds for every device
            with self._lock:
                self._described[general] = future
        return answer

    def _description(
        self,
        kernel: CompilableKernel,
        place: CompileEnvironment,
        sources: SourceSnapshot,
        device: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        general = place.description_key(sources)
        own = json_digest([general, device])
        # An earlier run may have stored it for any device or for this one.
        description = self._cache.described(general) or self._cache.described(own)
        if description is not None:
            return description
        answer = self._client.describe(
            CompileRequest(place, sources, self._folder, {"device": device})
        )
        if isinstance(answer, Rejection):
            message = f"kernel.{kernel.name}: {answer}"
            raise BuildError(message, excerpt=answer.excerpt, hint=answer.hint)
        self._cache.keep_described(own if answer.get("asked") else general, answer)
        return answer


_COMPARED_FIELDS = {
    "parameters": "parameters",
    "key": "arguments in its key",
    "computed": "computed constants",
    "facts": "tensors",
}
"""Attributes of a function that must be the same for every arch -> their name in messages."""


def functions_from_answers(
    kernel: str, answers: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, KernelFunction]:
    """Merge what the worker answered for each arch into one function per name, in source order.

    A source may define other candidates for another arch; each is then only for its archs.

    Raises:
        BuildError: a function takes other arguments on another arch.
    """
    functions_by_name: dict[str, dict[str, KernelFunction]] = {}
    for arch, answer in answers.items():
        for function in answer["functions"]:
            functions_by_name.setdefault(function["name"], {})[arch] = _function_from_json(function)
    return {name: _merge_functions(kernel, own) for name, own in functions_by_name.items()}


def arch_of_target(target: ImageTarget) -> str:
    """An arch that has the devices of a target, as `build.toml` writes it."""
    capability = target.capability
    return target.arch if capability is None else f"{capability.major}.{capability.minor}"


def _merge_functions(kernel: str, functions: Mapping[str, KernelFunction]) -> KernelFunction:
    (first, function), *others = functions.items()
    for arch, other in others:
        for what, title in _COMPARED_FIELDS.items():
            if getattr(other, what) != getattr(function, what):
                message = f"kernel.{kernel}: `{function.name}` has different {title} for {arch}"
                raise BuildError(
                    f"{message} than for {first}: its source depends on the arch",
                    hint="write two functions, or build for these archs in two sections",
                )
    notes = dict.fromkeys(note for other in functions.values() for note in other.notes)
    return replace(function, candidates=tuple(_candidates(functions)), notes=tuple(notes))


def _candidates(functions: Mapping[str, KernelFunction]) -> Iterator[Candidate]:
    """Yield the candidates; each names its archs where the lists differ between archs."""
    lists = [function.candidates for function in functions.values()]
    if all(candidates == lists[0] for candidates in lists):
        yield from lists[0]
        return
    for candidates in dict.fromkeys(lists):
        archs = tuple(arch for arch, f in functions.items() if f.candidates == candidates)
        yield from (replace(candidate, archs=archs) for candidate in candidates)


def _function_from_json(data: Mapping[str, Any]) -> KernelFunction:
    key, computed, notes = (tuple(data.get(word, ())) for word in ("key", "computed", "notes"))
    parameters = []
    for entry in data["parameters"]:
        name, constant = entry["name"], entry["constant"]
        has_default = constant and (entry["default"] or name in computed)
        has_value = entry.get("optional", False) or has_default
        parameters.append(KernelParameter(name, constant, has_value))
    candidates = tuple(
        Candidate(tuple(entry["constants"].items()), tuple(entry["options"].items()))
        for entry in data.get("candidates", ())
    )
    facts = data.get("facts", {})
    return KernelFunction(data["name"], tuple(parameters), candidates, key, computed, notes, facts)
