"""Connects to a cluster, and opens it for one build.

A cluster that listens beyond this machine speaks TLS. The scheduler, its workers and those who
build present one certificate, which `kbuild cluster start` makes: whoever has its key is in.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.pipeline.executors import BuildRequest
from kbuild.plugins.cluster.executor import ClusterExecutor, ClusterLimits
from kbuild.plugins.cluster.fill import SAMPLE_SHARE, ClusterFiller
from kbuild.plugins.cluster.jobs import machine_facts
from kbuild.plugins.cluster.worker import describe_runtime, run_unit
from kbuild.system.errors import ToolchainError, UsageError, install_command
from kbuild.system.files import replace_atomically
from kbuild.system.quantities import parse_duration

if TYPE_CHECKING:
    from distributed import Client, Security

    from kbuild.system.budget import Run
    from kbuild.system.processes import Runner
    from kbuild.system.services import Services

CREDENTIALS_VARIABLE = "KBUILD_CLUSTER_CREDENTIALS"
SAMPLE_VARIABLE = "KBUILD_CLUSTER_SAMPLE"
TIME_VARIABLE = "KBUILD_CLUSTER_UNIT_TIME"
WAIT_VARIABLE = "KBUILD_CLUSTER_WAIT"
_CONNECT_SECONDS = 10


def require_distributed() -> None:
    """Find Dask.

    Raises:
        ToolchainError: it is not installed.
    """
    from importlib.util import find_spec

    if find_spec("distributed") is None:
        raise ToolchainError("a cluster needs Dask", hint=install_command("distributed>=2026.1"))
    import dask
    import distributed

    # kbuild says itself what users have to know, and Dask's pages would be open to everybody.
    for name in (distributed.__name__, f"{distributed.__name__}.client"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
    for role in ("scheduler", "worker"):
        dask.config.set({f"distributed.{role}.http.routes": []})


def security_of(credentials: Path) -> Security:
    """TLS with the certificate in a file.

    Raises:
        UsageError: the file is not there, or others can read it.
    """
    from distributed import Security

    try:
        mode = credentials.stat().st_mode
    except OSError as error:
        hint = "copy the file that `kbuild cluster start` wrote"
        message = f"the credentials `{credentials}` cannot be read: {error.strerror}"
        raise UsageError(message, hint=hint) from None
    if mode & 0o077:
        message = f"others can read the credentials `{credentials}`"
        raise UsageError(message, hint=f"chmod 600 {credentials}")
    roles = ("client", "scheduler", "worker")
    files = {f"tls_{role}_{part}": str(credentials) for role in roles for part in ("key", "cert")}
    # The certificate signs itself, so it is its own authority as well.
    return Security(require_encryption=True, tls_ca_file=str(credentials), **files)


def write_credentials(file: Path) -> None:
    """Make a certificate and its key, in one file that only this user can read."""
    from distributed import Security

    security = Security.temporary()
    text = f"{security.tls_scheduler_key}{security.tls_scheduler_cert}"
    replace_atomically(file, text.encode(), mode=0o600)


def credentials_file(environ: Mapping[str, str], cache: Path) -> Path:
    """The file that the environment names, else the one in kbuild's cache folder."""
    name = environ.get(CREDENTIALS_VARIABLE)
    return Path(name).absolute() if name else cache / "cluster" / "credentials.pem"


def connect(where: str, credentials: Path) -> Client:
    """A client of the cluster at an address or in a scheduler file.

    Args:
        where: `tls://HOST:PORT`, `tcp://HOST:PORT` or the path of a scheduler file.
        credentials: certificate and key of the cluster; not needed where it speaks no TLS.

    Raises:
        ToolchainError: Dask is not installed, or the scheduler does not answer.
        UsageError: the credentials cannot be used, or are missing.
    """
    require_distributed()
    from distributed import Client

    address = where if "://" in where else _address_in(Path(where))
    is_tls = not address.startswith("tcp:")
    if is_tls and not credentials.exists():
        message = f"`{address}` requires credentials; the file `{credentials}` does not exist"
        hint = f"set {CREDENTIALS_VARIABLE} to the file that `kbuild cluster start` wrote"
        raise UsageError(message, hint=hint)
    security = security_of(credentials) if is_tls else None
    try:
        return Client(address, security=security, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ToolchainError(f"the cluster {address} does not answer: {reason}") from None


def _is_private(address: str) -> bool:
    """True for an address with TLS, or of this machine alone."""
    protocol, _, place = address.partition("://")
    host = place.rpartition(":")[0].strip("[]")
    return protocol == "tls" or host == "::1" or host.startswith("127.")


def _address_in(file: Path) -> str:
    """The address in a scheduler file.

    Raises:
        UsageError: there is none.
    """
    try:
        return str(json.loads(file.read_bytes())["address"])
    except (OSError, ValueError, KeyError, TypeError):
        message = f"`{file}` is neither the address of a cluster nor a scheduler file"
        raise UsageError(message, hint="e.g. --executor tls://127.0.0.1:8786") from None


def limits_of(environ: Mapping[str, str]) -> ClusterLimits:
    """The time limits of a build on a cluster.

    Raises:
        UsageError: a variable holds no duration.
    """
    usual = ClusterLimits()
    unit, wait = environ.get(TIME_VARIABLE), environ.get(WAIT_VARIABLE)
    return ClusterLimits(
        parse_duration(unit) if unit else usual.unit_seconds,
        parse_duration(wait) if wait else usual.worker_seconds,
    )


def sample_share(environ: Mapping[str, str]) -> float:
    """The share of objects that are compiled again here.

    Raises:
        UsageError: the variable holds no number from 0 to 1.
    """
    text = environ.get(SAMPLE_VARIABLE)
    try:
        share = float(text) if text else SAMPLE_SHARE
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{SAMPLE_VARIABLE} takes a number from 0 to 1, not `{text}`")
    return share


@contextmanager
def variant_executor(where: str, services: Services) -> Iterator[ClusterExecutor]:
    """The executor that runs variants on the workers of the cluster `where`, see `run_unit`.

    Raises:
        UsageError, ToolchainError: see `connect` and `limits_of`.
    """
    ui, limits = services.ui, limits_of(os.environ)
    client = connect(where, credentials_file(os.environ, services.cache))
    warn_of_reach(client, where, ui.warn)
    facts = machine_facts(services.cache).for_variants
    functions = (describe_runtime, run_unit)
    executor = ClusterExecutor(
        client, facts, ui.warn, limits, functions=functions, say_refusal=ui.detail
    )
    try:
        yield executor
    finally:
        executor.close()


def warn_of_reach(client: Client, where: str, say: Callable[[str], None]) -> None:
    """Say so where others can run programs on the workers."""
    if not _is_private(client.scheduler_info()["address"]):
        message = "whoever reaches it can run programs on its workers"
        say(f"the cluster {where} speaks no TLS: {message}")


@contextmanager
def cluster_filler(
    where: str,
    run: Run,
    runner: Runner,
    request: BuildRequest,
    say: Callable[[str], None],
) -> Iterator[ClusterFiller | None]:
    """The filler of the run's cache from the cluster `where`; None, with a warning, without one.

    Raises:
        UsageError: see `connect`, `limits_of` and `sample_share`.
        ToolchainError: Dask is not installed.
    """
    limits = limits_of(os.environ)
    share = sample_share(os.environ)
    # Not in the `try` below: a cluster that does not answer is no error, and a lack of Dask is one.
    require_distributed()
    try:
        client = connect(where, credentials_file(os.environ, run.cache))
    except ToolchainError as error:
        say(f"{error.message}; everything is compiled on this machine")
        yield None
        return
    warn_of_reach(client, where, say)
    executor = ClusterExecutor(
        client, machine_facts(run.cache), say, limits, is_ending=lambda: run.is_ending
    )
    filler = ClusterFiller(executor, run, runner, request, say, share=share)
    try:
        yield filler
    finally:
        filler.close()
