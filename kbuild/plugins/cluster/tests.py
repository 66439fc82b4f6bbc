"""`kbuild test --executor`: the tests of a project against its variants, on workers that fit them.

A worker gets the variant, and the project's files that git tracks or does not ignore.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kbuild.pipeline.testing import ProjectTests, TestReport, parse_junit
from kbuild.plugins.cluster.assignments import UnitResult, WorkUnit
from kbuild.plugins.cluster.connect import variant_executor
from kbuild.plugins.cluster.jobs import archive_files, job_digest
from kbuild.system.errors import DamagedFileError, UsageError
from kbuild.system.git import Repository
from kbuild.system.processes import Runner
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.untrusted import reading

if TYPE_CHECKING:
    from kbuild.plugins.cluster.executor import ClusterExecutor

_OUTPUTS = ("build", "result", ".git", ".kbuild")
_SECRET_FOLDERS = frozenset(
    {".ssh", ".aws", ".azure", ".gcloud", ".gnupg", ".docker", ".kube", ".huggingface", "secrets"}
)
_SECRET_FILES = (
    ".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pypirc", ".npmrc", ".pgpass",
    ".htpasswd", ".git-credentials", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key",
    "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "credentials", "token", "token.txt",
    "*.token",
    *(
        f"{name}.{suffix}"
        for name in ("credentials", "secret", "secrets", "client_secret*", "service[-_]account*")
        for suffix in ("json", "toml", "yml", "yaml", "ini", "cfg", "txt")
    ),
)  # fmt: skip
"""Names of files and folders that hold credentials by custom; Python's files never do."""
_MAX_BYTES = 1 << 30


def files_for_tests(root: Path, runner: Runner) -> dict[str, Path]:
    """The files of a project that its tests may need, by path: no outputs, and no credentials.

    Raises:
        UsageError: they are more than a worker takes.
    """
    tree = SourceTree(root)
    listed = Repository(root, runner).files()
    paths = listed if listed is not None else tree.walk(".", skip=("build", "result"))
    chosen = {
        path: root / path
        for path in paths
        if not _is_kept_back(path) and tree.is_file(path) and tree.is_inside(path)
    }
    size = sum(file.stat().st_size for file in chosen.values())
    if size > _MAX_BYTES:
        message = f"the project's files have {size >> 20} MB; workers take {_MAX_BYTES >> 20}"
        raise UsageError(message, hint="have git ignore what tests do not need")
    return chosen


def _is_kept_back(path: str) -> bool:
    *folders, name = PurePosixPath(path.lower()).parts
    if folders and folders[0] in _OUTPUTS:
        return True
    is_secret = any(fnmatchcase(name, pattern) for pattern in _SECRET_FILES)
    return not name.endswith(".py") and (is_secret or not _SECRET_FOLDERS.isdisjoint(folders))


def files_of_variant(folder: Path) -> dict[str, Path]:
    """The files of a built variant, by path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path
        for path in files
        if "__pycache__" not in path.parts
    }


def _publish(executor: ClusterExecutor, files: Mapping[str, Path]) -> str:
    """Put files down for workers; their digest."""
    archive = archive_files(files)
    executor.publish(archive.digest, archive.data)
    return archive.digest


def _reasons(executor: ClusterExecutor, unit: WorkUnit) -> list[str]:
    """The reasons that nobody ran a unit."""
    workers = executor.workers.values()
    reasons = [
        f"worker {worker.name}: {worker.excluded or worker.refused[unit.job]}"
        for worker in sorted(workers, key=lambda worker: worker.name)
        if worker.excluded or unit.job in worker.refused
    ]
    return reasons or ["every worker that had it was lost" if workers else "there is no worker"]


def run_on_cluster(
    where: str, root: Path, folders: Sequence[Path], tests: ProjectTests, services: Services
) -> tuple[list[TestReport], dict[str, list[str]]]:
    """Run the tests of the project in `root` against each variant, on a worker that fits it.

    Returns:
        The reports in the order of `folders`, and by variant that no worker has tested, why.

    Raises:
        UsageError: the credentials cannot be used, or the project's files are too many.
        ToolchainError: the cluster does not answer.
    """
    # A worker unpacks the project elsewhere, so pytest's arguments must not name this machine's.
    rest = tuple(part.replace(f"{root}/", "") for part in tests.rest)
    request = {"tests": {**asdict(tests), "rest": rest}}
    reports: dict[str, TestReport] = {}
    with (
        variant_executor(where, services) as executor,
        services.ui.progress("testing", len(folders)) as progress,
    ):
        project = _publish(executor, files_for_tests(root, services.runner))
        units = []
        for folder in folders:
            archives = {"project": project, "variant": _publish(executor, files_of_variant(folder))}
            job = {**request, "variant": folder.name, "archives": archives}
            data = json.dumps(job, sort_keys=True).encode()
            name = job_digest(data)
            executor.publish(name, data)
            units.append(WorkUnit(name, folder.name, name))

        def deliver(result: UnitResult) -> None:
            reports[result.unit.label] = parse_report(result)
            label = f"{result.unit.label} on {result.worker} ({executor.load})"
            progress.update(len(reports), len(units), label)

        left = executor.execute(units, deliver)
        refusals = {unit.label: _reasons(executor, unit) for unit in left}
    return [reports[folder.name] for folder in folders if folder.name in reports], refusals


def parse_report(result: UnitResult) -> TestReport:
    """The report in a worker's answer; a failure when it has none."""
    variant, worker = result.unit.label, result.worker
    try:
        with reading("the answer", "an answer of a worker"):
            facts = json.loads(result.outputs["result"])
            return TestReport(
                variant,
                int(facts["status"]),
                str(facts["output"]),
                float(facts["seconds"]),
                parse_junit(result.outputs.get("junit", b"")),
                worker,
                str(facts["torch"]),
                str(facts["device"]),
                bool(facts["hung"]),
            )
    except DamagedFileError as error:
        return TestReport(variant, 1, error.message, result.seconds, None, worker)
