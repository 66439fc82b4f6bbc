"""Fetches a revision of a kernel on the Hub (`hub:org/kernel@v1`) into a folder.

Downloads go through `huggingface_hub` into its own cache (`HF_HOME`), so that what was fetched
once is there again offline. Endpoint, token, proxies and `HF_HUB_OFFLINE` are its business; a
token is never read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kbuild.publish.hub.repository import KERNEL
from kbuild.system.errors import (
    HubError,
    KbuildError,
    ToolchainError,
    UsageError,
    install_command,
)
from kbuild.system.files import link_file
from kbuild.system.untrusted import UnpackLimit

if TYPE_CHECKING:
    from huggingface_hub import HfApi


_SPEC = re.compile(
    r"hub:(?P<repo>[\w][\w.-]*/[\w][\w.-]*)@(?P<revision>[\w][\w./-]*)", flags=re.ASCII
)


@dataclass(frozen=True)
class HubSpec:
    """A repository at a revision."""

    repo: str
    revision: str
    """A branch such as `v1`, a tag, or a commit."""

    @classmethod
    def parse(cls, text: str) -> HubSpec:
        """Read `hub:org/kernel@v1`.

        Raises:
            UsageError: the text is not written like that.
        """
        match = _SPEC.fullmatch(text)
        if match is None or ".." in text:
            hint = "write hub:OWNER/KERNEL@REVISION, e.g. hub:my-org/relu@v1"
            missing = "names no revision" if "@" not in text else "is not a kernel on the Hub"
            raise UsageError(f"`{text}` {missing}", hint=hint)
        return cls(match["repo"], match["revision"])

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}"


BUILD = "build"
_NO_VARIANT = ("",)
"""Globs that match no variant: the revision is looked up, and nothing of it is downloaded."""
_NETWORK_HINT = "is there a network? `HF_HUB_OFFLINE=1` takes what was fetched before"
_LOGIN = "is the name right? A private kernel needs `hf auth login`, or `HF_TOKEN`"


def fetch_revision(spec: HubSpec | str, into: Path, variants: Sequence[str] = ()) -> Path:
    """Put the revision's `build/` into a folder, which may be removed at will; returns the folder.

    Args:
        spec: `hub:org/kernel@v1`.
        into: an existing folder. Files may share their bytes with the cache: do not write to them.
        variants: globs; only variants that match one are downloaded, all without any.

    Raises:
        UsageError: there is no such repository, revision or variant, or no access to it.
        ToolchainError: `huggingface_hub` is not installed.
        DamagedFileError: it has too many files, too large ones, or names that lead elsewhere.
        KbuildError: the Hub cannot be reached, and the cache does not have it.
    """
    spec = HubSpec.parse(spec) if isinstance(spec, str) else spec
    with _translated_errors(spec):
        snapshot = _offline(spec, variants) if _is_offline() else _online(spec, variants)
    # Files in place of the cache's links: a link that leads away is a fault in a variant.
    for source in sorted((snapshot / BUILD).rglob("*")):
        if source.is_file():
            link_file(source.resolve(), into / source.relative_to(snapshot))
    return into


def list_variants(text: str) -> list[str]:
    """The variants of a revision by name; offline, those that were fetched before.

    Raises:
        UsageError: there is no such repository or revision, no access to it, or it has no variants.
        ToolchainError: `huggingface_hub` is not installed.
        DamagedFileError: its files have names that lead elsewhere.
        KbuildError: the Hub cannot be reached, and the cache does not have it.
    """
    spec = HubSpec.parse(text)
    with _translated_errors(spec):
        if _is_offline():
            folders = (_offline(spec, _NO_VARIANT) / BUILD).glob("*")
            return sorted(folder.name for folder in folders if folder.is_dir())
        return _online_names(spec, _NO_VARIANT)


def _is_offline() -> bool:
    """True when `huggingface_hub` may only read its cache.

    Raises:
        ToolchainError: it is not installed.
    """
    try:
        from huggingface_hub import constants
    except ImportError as error:
        raise ToolchainError(
            "reading the Hub needs huggingface_hub",
            hint=install_command("huggingface_hub>=1.10"),
        ) from error
    return bool(constants.HF_HUB_OFFLINE)


def _online(spec: HubSpec, variants: Sequence[str]) -> Path:
    names = _online_names(spec, variants)
    for glob in variants:
        if not any(fnmatchcase(name, glob) for name in names):
            raise UsageError(
                f"{spec} has no variant that matches {glob}", hint=f"there are: {', '.join(names)}"
            )
    return _download(spec, variants)


def _online_names(spec: HubSpec, globs: Sequence[str]) -> list[str]:
    """The variants of the revision, of which there is at least one; see `_names`."""
    from huggingface_hub import HfApi

    from kbuild.publish.hub.huggingface import require_listener

    api = HfApi(library_name="kbuild")
    try:
        require_listener(str(api.endpoint))
    except HubError as error:
        raise KbuildError(
            f"{spec} cannot be fetched: {error.message}", hint=_NETWORK_HINT
        ) from error
    api.repo_info(spec.repo, revision=spec.revision, repo_type=KERNEL)
    names = _names(api, spec, globs)
    if not names:
        raise UsageError(
            f"{spec} has no built variants", hint="kernels are on branches such as `v1`"
        )
    return names


def _names(api: HfApi, spec: HubSpec, globs: Sequence[str]) -> list[str]:
    """The variants of the revision; those that `globs` ask for are of a size to be downloaded."""
    from huggingface_hub import RepoFile
    from huggingface_hub.errors import EntryNotFoundError

    names, allowed = set(), UnpackLimit(str(spec), UnpackLimit.MOST_BYTES)
    try:
        for entry in api.list_repo_tree(
            spec.repo, BUILD, recursive=True, revision=spec.revision, repo_type=KERNEL
        ):
            allowed.enter(entry.path)
            parts = PurePosixPath(entry.path).parts
            if parts[:1] != (BUILD,) or ".." in parts:
                raise allowed.refusal(entry.path, f"it is not in `{BUILD}`")
            # A file that lies in `build/` itself belongs to no variant.
            if isinstance(entry, RepoFile) and len(parts) > 2:  # noqa: PLR2004
                names.add(parts[1])
                if not globs or any(fnmatchcase(parts[1], glob) for glob in globs):
                    allowed.add(entry.path, entry.size)
    except EntryNotFoundError:
        return []
    return sorted(names)


def _offline(spec: HubSpec, variants: Sequence[str]) -> Path:
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return _download(spec, variants, local=True)
    except LocalEntryNotFoundError as error:
        raise KbuildError(
            f"{spec} is not in the cache of huggingface_hub, and `HF_HUB_OFFLINE` is set",
            hint="unset `HF_HUB_OFFLINE`, or fetch it once where there is a network",
        ) from error


def _download(spec: HubSpec, variants: Sequence[str], *, local: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            spec.repo,
            repo_type=KERNEL,
            revision=spec.revision,
            library_name="kbuild",
            allow_patterns=[f"{BUILD}/{glob}/*" for glob in variants] or [f"{BUILD}/*"],
            local_files_only=local,
        )
    )


@contextmanager
def _translated_errors(spec: HubSpec) -> Iterator[None]:
    """The error of kbuild for an error of `huggingface_hub`, without anything of the request."""
    try:
        yield
    except KbuildError:
        raise
    except Exception as error:
        raise _translate_error(spec, error) from error


def _translate_error(spec: HubSpec, error: Exception) -> KbuildError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        hint = "ask for access on its page, then `hf auth login`"
        return UsageError(f"access to {spec.repo} is restricted", hint=hint)
    if isinstance(error, errors.RevisionNotFoundError):
        hint = "kernels are on branches such as `v1`; a commit is written in full"
        return UsageError(f"{spec.repo} has no revision `{spec.revision}`", hint=hint)
    if isinstance(error, errors.RepositoryNotFoundError):
        return UsageError(f"the Hub has no kernel `{spec.repo}`", hint=_LOGIN)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        hint = "try again later" if status >= 500 else _LOGIN  # noqa: PLR2004
        return KbuildError(f"the Hub answered {status} when asked for {spec}", hint=hint)
    message = f"{spec} cannot be fetched: {type(error).__name__}"
    return KbuildError(message, hint=_NETWORK_HINT)
