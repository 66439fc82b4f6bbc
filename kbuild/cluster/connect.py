"""Connects to a cluster, and opens it for one build.

A cluster that listens beyond this machine speaks TLS. The scheduler, its workers and those who
build present one certificate, which `kbuild cluster start` makes: whoever has its key is in.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cluster.executor import ClusterExecutor, ClusterLimits
from kbuild.cluster.fill import SAMPLE_SHARE, BuildRequest, ClusterFiller
from kbuild.cluster.jobs import machine_facts
from kbuild.errors import ToolchainError, UsageError
from kbuild.runtime.files import replace_atomically
from kbuild.runtime.quantities import parse_duration

if TYPE_CHECKING:
    from distributed import Client, Security

    from kbuild.runtime.budget import Run
    from kbuild.runtime.processes import Runner

CLUSTER_VARIABLE = "KBUILD_CLUSTER"
CREDENTIALS_VARIABLE = "KBUILD_CLUSTER_CREDENTIALS"
SAMPLE_VARIABLE = "KBUILD_CLUSTER_SAMPLE"
TIME_VARIABLE = "KBUILD_CLUSTER_UNIT_TIME"
WAIT_VARIABLE = "KBUILD_CLUSTER_WAIT"
_CONNECT_SECONDS = 10
_OTHER_LOGGERS = ("distributed", "distributed.core", "distributed.client", "tornado")


def require_distributed() -> None:
    """Find Dask.

    Raises:
        ToolchainError: it is not installed.
    """
    from importlib.util import find_spec

    if find_spec("distributed") is None:
        raise ToolchainError("a cluster needs Dask", hint="pip install 'kbuild[cluster]'")
    import dask

    # Only messages of kbuild: what Dask logs about connections that end says nothing to users.
    for name in _OTHER_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    dask.config.set({"distributed.worker.memory.pause": False})


def security_of(credentials: Path | None) -> Security | None:
    """TLS with the certificate in a file; None, without a file, for loopback.

    Raises:
        UsageError: the file is not there, or others can read it.
    """
    from distributed import Security

    if credentials is None:
        return None
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
    return Security(require_encryption=True, tls_ca_file=str(credentials), **files)


def write_credentials(file: Path) -> None:
    """Make a certificate and its key, in one file that only this user can read."""
    from distributed import Security

    made = Security.temporary()
    text = f"{made.tls_scheduler_key}{made.tls_scheduler_cert}"
    replace_atomically(file, text.encode(), mode=0o600)


def credentials_of(environ: Mapping[str, str]) -> Path | None:
    """The file that the environment names."""
    name = environ.get(CREDENTIALS_VARIABLE)
    return Path(name).absolute() if name else None


def connect(where: str, environ: Mapping[str, str] = os.environ) -> Client:
    """A client of the cluster at an address or in a scheduler file.

    Raises:
        ToolchainError: Dask is not installed, or the scheduler does not answer.
        UsageError: the credentials cannot be used, or are missing.
    """
    require_distributed()
    from distributed import Client

    credentials = credentials_of(environ)
    is_address = "://" in where
    if is_address and where.startswith("tls:") and credentials is None:
        message = f"`{where}` speaks TLS, and no credentials are given"
        hint = f"set {CREDENTIALS_VARIABLE} to the file that `kbuild cluster start` wrote"
        raise UsageError(message, hint=hint)
    if not is_address and not Path(where).is_file():
        message = f"`{where}` is no address of a cluster, and no scheduler file"
        raise UsageError(message, hint="e.g. --cluster tcp://127.0.0.1:8786")
    place: dict[str, Any] = {"address": where} if is_address else {"scheduler_file": where}
    try:
        return Client(
            **place,
            security=security_of(credentials),
            timeout=_CONNECT_SECONDS,
            set_as_default=False,
        )
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ToolchainError(f"the cluster `{where}` does not answer: {reason}") from None


def limits_of(environ: Mapping[str, str]) -> ClusterLimits:
    """How long a build waits for its cluster.

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
def cluster_filler(
    where: str,
    run: Run,
    runner: Runner,
    request: BuildRequest,
    say: Callable[[str], None],
) -> Iterator[ClusterFiller | None]:
    """What fills the run's cache from the cluster `where`; None, said why, without a cluster.

    Raises:
        UsageError: see `connect`, `limits_of` and `sample_share`.
        ToolchainError: Dask is not installed.
    """
    limits = limits_of(os.environ)
    request = replace(request, share=sample_share(os.environ))
    require_distributed()
    try:
        client = connect(where)
    except ToolchainError as error:
        say(f"{error.message}; everything is compiled on this machine")
        yield None
        return
    executor = ClusterExecutor(client, machine_facts(run.cache), say, limits, lambda: run.is_ending)
    filler = ClusterFiller(executor, run, runner, request, say)
    try:
        yield filler
    finally:
        filler.close()
