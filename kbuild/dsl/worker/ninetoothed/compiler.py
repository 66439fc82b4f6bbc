"""The worker for NineToothed: turns its kernels into Triton functions for Triton's worker."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import triton as triton_

from kbuild.dsl.worker import triton
from kbuild.dsl.worker.ninetoothed.generate import fake_gpu, generate, source_location
from kbuild.dsl.worker.ninetoothed.inputs import BuildInputs, BuildRecorder, collect
from kbuild.dsl.worker.ninetoothed.merge import merge_configs
from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import SourceModules
from kbuild.dsl.worker.triton_functions import TritonKernel


class _GeneratedKernel(NamedTuple):
    """A Triton kernel that was generated from a kernel of a source."""

    kernel: TritonKernel
    facts: Mapping[str, Any]
    place: tuple[str, int]
    """File and line of the author's `application`."""


class NineToothedCompiler(triton.TritonCompiler):
    """See `protocol.WorkerCompiler`."""

    def __init__(self) -> None:
        super().__init__()
        self._generated: dict[int, Mapping[str, _GeneratedKernel]] = {}

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.WorkerCompiler`."""
        generated = self._all(self._sources.get(request))
        described = super().describe(request)
        facts = ({**one, "facts": generated[one["name"]].facts} for one in described["functions"])
        return {**described, "functions": [*facts]}

    def _functions(self, sources: SourceModules) -> Mapping[str, TritonKernel]:
        return {name: generated.kernel for name, generated in self._all(sources).items()}

    def _explained(
        self, error: Exception, kernel: TritonKernel, sources: SourceModules
    ) -> RefusalError:
        refusal = super()._explained(error, kernel, sources)
        refusal.file, refusal.line = self._all(sources)[kernel.name].place
        return refusal

    def _all(self, sources: SourceModules) -> Mapping[str, _GeneratedKernel]:
        # An `id` is not used again, because `SourceCache.get` keeps all sources.
        kernels_by_name = self._generated.get(id(sources))
        if kernels_by_name is None:
            kernels = _collected(sources)
            kernels_by_name = {inputs.name: self._make(inputs, sources) for inputs in kernels}
            self._generated[id(sources)] = kernels_by_name
        return kernels_by_name

    def _make(self, inputs: BuildInputs, sources: SourceModules) -> _GeneratedKernel:
        try:
            with fake_gpu(triton_):
                configs = [generate(inputs, index) for index in range(len(inputs.configs))]
            text, facts = merge_configs(inputs.name, inputs.meta_parameters, configs)
            kernel = TritonKernel(inputs.name, self._imported(inputs.name, text))
        except Exception as error:
            refusal = sources.refusal(error)
            if not refusal.file:
                refusal.file, refusal.line = source_location(inputs.premake)
            raise refusal from error
        return _GeneratedKernel(kernel, facts, (configs[0]["file"], configs[0]["line"]))

    @staticmethod
    def _imported(name: str, text: str) -> Any:
        """Import the Triton function from a generated file; Triton reads sources from files."""
        folder = Path(tempfile.mkdtemp())
        path = folder / f"{name}.py"
        path.write_text(text, "utf-8")
        spec = importlib.util.spec_from_file_location(f"{folder.name}_{name}", path)
        if spec is None or spec.loader is None:
            raise RefusalError(f"`{path}` cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)


def _collected(sources: SourceModules) -> list[BuildInputs]:
    with _recording() as recorder:
        module = sources.main()
    try:
        return collect(module, Path(module.__file__ or sources.first), recorder.calls)
    except RefusalError as refusal:
        refusal.file, refusal.line = module.__file__ or sources.first, 1
        raise


@contextlib.contextmanager
def _recording() -> Iterator[BuildRecorder]:
    """Replace `ninetoothed.build` by a recorder, under each name that a source may import."""
    import ninetoothed  # type: ignore[import-not-found]

    recorder = BuildRecorder()
    original = ninetoothed.build
    module: Any = importlib.import_module("ninetoothed.build")
    ninetoothed.build = module.build = recorder.build
    try:
        yield recorder
    finally:
        ninetoothed.build = module.build = original


Compiler = NineToothedCompiler
"""The class that `kbuild.dsl.worker` instantiates."""
