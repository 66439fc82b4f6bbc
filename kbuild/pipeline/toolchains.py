"""The sources of toolchains that a command may use, and which of them serves a variant.

A plan is made again where the one that serves has another device compiler than the variant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kbuild.pipeline.options import BuildOptions
from kbuild.plan.plan import Requirements, ToolchainSummary, VariantPlan
from kbuild.plan.selection import project_variants
from kbuild.plan.variant import Planner
from kbuild.project.variant import host_system
from kbuild.system.errors import ToolchainError
from kbuild.system.services import Services
from kbuild.system.version import Version
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.dependency_headers.search import HeaderResolver, header_versions
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import HostToolchains
from kbuild.toolchains.rocm import RocmToolchains

TOOLCHAIN_NAMES = ("auto", "host", "wheels")
Sources = Sequence[ToolchainSource]
T = TypeVar("T")


def find_toolchains(options: BuildOptions, services: Services) -> Toolchains:
    """The toolchains that the options name.

    Raises:
        UsageError: there is no source of that name.
    """
    return Toolchains(
        _sources(options, services),
        HeaderResolver(options.sources, services.cache, services.runner),
    )


def _sources(options: BuildOptions, services: Services) -> Sources:
    """The sources of compilers and frameworks, in order of preference.

    `auto` takes the Torch that is installed for C++ variants that it fits, wheels for everything
    else that they have, and the host's device compilers (nvcc, icpx, an installed ROCm) for the
    rest. It is `host` alone when an interpreter was asked for: its Torch is then what the user
    wants to build against.
    """
    host = HostToolchains(
        services.runner,
        FactCache(services.cache),
        options.python,
        is_portable=not options.is_local_only,
        downloads=services.ui.downloads,
    )
    name = options.toolchain
    if name not in TOOLCHAIN_NAMES:
        from kbuild.toolchains.plugins import plugin_toolchain

        return (plugin_toolchain(name, host, TOOLCHAIN_NAMES),)
    rocm = RocmToolchains(host, os.environ)
    if name == "host" or (name == "auto" and options.python is not None):
        return (host, rocm)
    wheels = _wheel_sources(options, services)
    if name == "wheels":
        return wheels
    # The host comes twice: first for C++ alone, so that pinned wheels go before its device
    # compilers.
    return (replace(host, finder=None), *wheels, host, rocm)


def _wheel_sources(options: BuildOptions, services: Services) -> Sources:
    """The sources of wheels; CUDA 12 comes from an installed toolkit, else from a plug-in.

    The first is for this machine's system, the others for those that were asked for.
    """
    from kbuild.system.store import open_store
    from kbuild.toolchains.cuda_toolkits import LocalCudaToolkits
    from kbuild.toolchains.from_wheels import WheelToolchains
    from kbuild.toolchains.plugins import plugin_cuda_toolkits
    from kbuild.toolchains.wheels.cuda import CROSS_TARGET
    from kbuild.toolchains.wheels.installer import WheelInstaller

    runner, cache, downloads = services.runner, services.cache, services.ui.downloads
    installer = WheelInstaller(runner, open_store(cache), downloads=downloads)
    local = LocalCudaToolkits(FactCache(cache), runner)
    others = (local, *plugin_cuda_toolkits(installer, cache))
    native = WheelToolchains(runner, cache, options.python, downloads, others=others)
    systems = sorted({str(system) for system in options.selection.cross} - {str(host_system())})
    toolkits = (replace(local, target=CROSS_TARGET),)
    return (native, *(replace(native, cross=system, others=toolkits) for system in systems))


@dataclass(frozen=True)
class Toolchains:
    """Sources in order of preference: the first that supports a variant serves it.

    Each question about the same requirements is asked once; errors are not kept.
    """

    sources: Sources
    headers: HeaderResolver
    """Finds the headers that kernels depend on; sources know nothing of them."""
    _answers: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def unsupported_reason(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.unsupported_reason`."""
        source = self._once(self._source, requires)
        if isinstance(source, str):
            return source
        names = requires.libraries
        return self.headers.unsupported_reason(names, _release(requires)) if names else None

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`; without a fingerprint where there are headers."""
        return self._once(self._preview, requires)

    def compiler(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.compiler`."""
        return self._serving(requires).compiler(_without_headers(requires))

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        return self._once(self._provision, requires)

    def _once(self, answer: Callable[[Requirements], T], requires: Requirements) -> T:
        key = (answer.__name__, requires)
        if key not in self._answers:
            self._answers[key] = answer(requires)
        known: T = self._answers[key]
        return known

    def _source(self, requires: Requirements) -> ToolchainSource | str:
        """The source that serves, or the reason why none does."""
        sources = [source for source in self.sources if source.cross in (None, requires.system)]
        reasons: dict[str, str] = {}
        for source in sources:
            reason = source.unsupported_reason(_without_headers(requires))
            if reason is None:
                return source
            # A source that is never for this backend has nothing to say about it.
            if len(sources) == 1 or source.is_for(requires.backend):
                reasons[source.name] = reason
        if len(set(reasons.values())) == 1:
            return next(iter(reasons.values()))
        here = str(host_system())
        if requires.system not in (None, here):
            other = f"needs {requires.system}; this machine is {here}"
            return next((reasons[source.name] for source in sources if source.cross), other)
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())

    def _serving(self, requires: Requirements) -> ToolchainSource:
        source = self._once(self._source, requires)
        if isinstance(source, str):
            raise ToolchainError(f"no toolchain fits: {source}")
        return source

    def _preview(self, requires: Requirements) -> ToolchainSummary:
        summary = self._serving(requires).preview(_without_headers(requires))
        if not requires.libraries:
            return summary
        headers = self.headers.expected(requires.libraries, _release(requires))
        versions = (*summary.versions, *header_versions(headers))
        # The headers are not fetched yet, so what the fingerprint would cover is unknown.
        return replace(summary, versions=versions, fingerprint="")

    def _provision(self, requires: Requirements) -> Toolchain:
        toolchain = self._serving(requires).provision(_without_headers(requires))
        if not requires.libraries:
            return toolchain
        headers = self.headers.resolve(requires.libraries, _release(requires))
        facts = (
            (dependency.fact, ";".join(map(str, dependency.include_dirs))) for dependency in headers
        )
        return replace(
            toolchain,
            cache=(*toolchain.cache, *facts),
            headers=header_versions(headers),
            store=toolchain.store or self.headers.store.root,
        )


def unsupported_plan_reason(tools: Toolchains, plan: VariantPlan) -> str | None:
    """The reason why no toolchain here builds a variant; None when one does."""
    reason, system = tools.unsupported_reason(plan.requires), plan.requires.system
    if reason is None and system not in (None, str(host_system())):
        from kbuild.ops.language import LANGUAGES

        for kernel in plan.aot:
            language = LANGUAGES.get(kernel.language)
            if language.has_host_code and not language.compiles_for_other_hosts:
                what = f"needs {system}: images of kernel.{kernel.name} ({kernel.language})"
                return f"{what} have host code, which is compiled for {host_system()} alone"
    return reason


def replan_for_compilers(
    planner: Planner, plans: Sequence[VariantPlan], tools: Toolchains
) -> tuple[VariantPlan, ...]:
    """The plans, made again where the device compiler here is of another release than the variant.

    Raises:
        ConfigError: that compiler targets none of the archs that are asked for.
    """
    compilers = {
        plan.variant: release
        for plan in plans
        if unsupported_plan_reason(tools, plan) is None
        and (release := tools.compiler(plan.requires))
    }
    if not compilers:
        return tuple(plans)
    choices = project_variants(planner.project)
    again = planner.plans([c for c in choices if str(c.variant) in compilers], compilers)
    replanned = {plan.variant: plan for plan in again}
    return tuple(replanned.get(plan.variant, plan) for plan in plans)


def _without_headers(requires: Requirements) -> Requirements:
    return replace(requires, libraries=())


def _release(requires: Requirements) -> Version | None:
    return Version.parse(requires.toolkit) if requires.toolkit else None
