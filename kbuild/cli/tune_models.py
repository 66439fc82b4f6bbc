"""The part of `kbuild tune` that measures: all models at the same time, each with its devices."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kbuild.cli.tune_build import build_for_devices
from kbuild.cli.variants import chosen_python
from kbuild.dsl.tune.cases import read_shapes
from kbuild.dsl.tune.host import Device, ProbeHost
from kbuild.dsl.tune.tuning import (
    TuneRequest,
    TuneResult,
    TuningProgress,
    TuningRun,
    tune_models,
)
from kbuild.dsl.tune.workers import ProbeSource, WorkerSettings
from kbuild.ops.manifest import OpManifest, read_manifest
from kbuild.pipeline.executors import executor_address, find_executor
from kbuild.project.config.issue import one_of
from kbuild.system.errors import UsageError
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from kbuild.system.workspace import Workspace


def tune_with(args: Namespace, ctx: Services, root: Path, limit_s: float) -> tuple[TuneResult, ...]:
    """One tuning for each model among the devices; no measurement starts after `limit_s` seconds.

    Raises:
        KbuildError: there is no such device, or no variant for it.
    """
    executor = executor_address(args.executor)
    if executor and args.python:
        hint = "leave one out: other machines have interpreters of their own"
        message = "--python names a file of this machine; others do not have it"
        raise UsageError(message, hint=hint)
    python = chosen_python(args.python, ctx)
    space = Workspace(root, "tune")
    with _probe_source(executor, ctx, root, python) as probes:
        place = f"on {executor}" if executor else f"with {python}"
        with ctx.ui.step(f"looking for GPUs {place}"):
            devices = probes.devices().chosen(args.device)
        models = _devices_by_model(devices, ctx.ui)
        named = ctx.folder(args.variant) if args.variant else None
        variants = _variants_by_build(
            models, lambda alike: named or build_for_devices(ctx, root, python, alike, executor)
        )
        # The limit is for measurements: builds and the search for GPUs do not count.
        ends = time.monotonic() + limit_s
        names = ", ".join(name for name, _ in models)
        with space.locked(say=ctx.ui.say), ctx.ui.progress(f"tuning on {names}", 0) as progress:
            view, runs = TuningProgress(progress), []
            for alike in models.values():
                variant = variants[alike[0].build]
                description, wish = read_request(args, ctx, variant)
                setting = WorkerSettings(
                    probes.connect(), variant, description.namespace, root, ends, say=ctx.ui.warn
                )
                runs.append(TuningRun(setting, description, alike, wish, view, space.root))
            return tune_models(runs)


def read_request(args: Namespace, ctx: Services, variant: Path) -> tuple[OpManifest, TuneRequest]:
    """Read the kernels of the variant, and what is measured of them.

    Raises:
        KbuildError: it is no variant for tuning, or lacks what is asked for.
    """
    description = read_manifest(variant)
    ops = [op for kernel in description.kernels for op in kernel.ops()]
    names = [op.name for op in ops]
    origins = [kernel.section.origin for kernel in description.kernels]
    for name in args.op:
        if name not in (*names, *origins):
            raise UsageError(f"there is no op `{name}`", hint=one_of(name, names))
    cases = read_shapes(ctx.path(args.shapes), ops) if args.shapes else {}
    return description, TuneRequest(tuple(args.op), cases)


@contextmanager
def _probe_source(executor: str, ctx: Services, root: Path, python: Path) -> Iterator[ProbeSource]:
    """The devices of this machine, or of the executor at an address."""
    if executor:
        remote, address = find_executor(executor)
        with remote.probe_devices(address, root, ctx) as probes:
            yield probes
        return
    log = Workspace(root, "tune").logs / "workers.txt"
    with ProbeHost(ctx.runner, python, root, log) as host:
        yield host


def _devices_by_model(
    devices: Sequence[Device], ui: Ui
) -> Mapping[tuple[str, str], Sequence[Device]]:
    """Devices that share a table, which is for one release of Torch; others are left out."""
    models: dict[tuple[str, str], list[Device]] = {}
    for device in devices:
        alike = models.setdefault(device.model, [])
        if alike and alike[0].torch != device.torch:
            ui.warn(f"{device.id} is not used: it has Torch {device.torch}, not {alike[0].torch}")
        else:
            alike.append(device)
    return models


def _variants_by_build(
    models: Mapping[tuple[str, str], Sequence[Device]],
    variant_for: Callable[[Sequence[Device]], Path],
) -> Mapping[tuple[str, str], Path]:
    """A variant for each Torch and backend, with the archs of all devices that run it."""
    groups: dict[tuple[str, str], list[Device]] = {}
    for alike in models.values():
        groups.setdefault(alike[0].build, []).extend(alike)
    return {build: variant_for(devices) for build, devices in groups.items()}
