"""The Hub client on `huggingface_hub`, which knows addresses, storage and tokens.

Its own messages are not passed on: they hold addresses with signatures. Its exceptions are
translated into kbuild's errors, with secrets removed.
"""

from __future__ import annotations

import logging
import re
import socket
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.publish.hub.repository import (
    KERNEL,
    AccessDeniedError,
    Account,
    BusyError,
    Commit,
    ConflictError,
    NotFoundError,
    Refs,
    RemoteFile,
    RemoteFiles,
    Repo,
    UploadFile,
)
from kbuild.system.errors import (
    HubError,
    KbuildError,
    ToolchainError,
    error_chain,
    install_command,
)
from kbuild.system.files import is_inside
from kbuild.system.redact import redacted
from kbuild.system.untrusted import reading

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, HfApi, RepoFile


_BUSY = (408, 425, 429, 500, 502, 503, 504)
_UNKNOWN_TOKEN, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _PRECONDITION_FAILED = 401, 403, 404, 409, 412
_NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "hf_xet")
_RATE_LIMIT_RESET = re.compile(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d+)")
_LOGIN = "`hf auth login` asks for a new one; `HF_TOKEN` takes precedence over the stored one"
_APPROVAL = (
    "the token must be one that may write, and the Hub must let its owner publish kernels: ask for "
    "that on the Hub's pages about kernels, or give --create-pr"
)
_LATER = "run the command again: it continues where this run stopped"


def translate_hub_error(error: Exception, what: str) -> HubError:
    """The error to raise instead. `what` follows "the Hub was asked"."""
    causes = tuple(error_chain(error))
    for cause in causes:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int):
            return _error_of_status(status, cause, what)
    if any(type(cause).__name__ == "OfflineModeIsEnabled" for cause in causes):
        return HubError("`HF_HUB_OFFLINE` is set", hint="unset it to upload")
    if any(type(cause).__name__ == "LocalTokenNotFoundError" for cause in causes):
        return AccessDeniedError("there is no token for the Hub", hint=_LOGIN)
    if any(_is_network(cause) for cause in causes):
        from huggingface_hub import constants

        address = redacted(str(constants.ENDPOINT)).rstrip("/")
        return BusyError(f"{address} did not answer when asked {what}", hint=_LATER)
    return HubError(f"asking the Hub {what} failed: {_error_line(error)}")


def _error_of_status(status: int, error: BaseException, what: str) -> HubError:
    reason = _server_words(error)
    if status in _BUSY:
        is_limit = status == 429  # noqa: PLR2004
        text = "the Hub received too many requests" if is_limit else f"the Hub answered {status}"
        headers = getattr(getattr(error, "response", None), "headers", {})
        return BusyError(
            f"{text} when asked {what}", retry_after_s=requested_wait(headers), hint=_LATER
        )
    # The Hub also answers 401 about a repository that does not exist or is private.
    if status == _UNKNOWN_TOKEN and type(error).__name__ != "RepositoryNotFoundError":
        return AccessDeniedError("the Hub rejected the token", hint=_LOGIN)
    if status in (_UNKNOWN_TOKEN, _NOT_FOUND):
        return NotFoundError(f"the Hub found nothing when asked {what}{reason}")
    if status == _FORBIDDEN:
        return AccessDeniedError(f"the Hub refused when asked {what}{reason}", hint=_APPROVAL)
    if status in (_CONFLICT, _PRECONDITION_FAILED):
        return ConflictError(
            f"the repository changed while the Hub was asked {what}{reason}", hint=_LATER
        )
    return HubError(f"the Hub answered {status} when asked {what}{reason}")


def requested_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the Hub asks to wait, by `Retry-After` or by its count of requests."""
    known = {str(key).lower(): str(value) for key, value in headers.items()}
    after = known.get("retry-after", "").strip()
    if after.isdecimal():
        return float(after)
    reset = _RATE_LIMIT_RESET.search(known.get("ratelimit", ""))
    return float(reset[1]) if reset else None


def _is_network(error: BaseException) -> bool:
    origin = type(error).__module__.partition(".")[0]
    return origin in _NETWORK or isinstance(error, (ConnectionError, TimeoutError))


def _server_words(error: BaseException) -> str:
    """The reason that the Hub itself gave, on one line."""
    text = str(getattr(error, "server_message", None) or "")
    return f": {redacted(' '.join(text.split()))[:300]}" if text else ""


def _error_line(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    return redacted(first)[:300] or type(error).__name__


_CONNECTIONS = 2
"""Attempts at a connection before anything is asked."""
_CONNECTION_S = 10.0
"""Seconds for each; with several addresses of a host, for each of them."""
_PAUSE_S = 1.0
_BRANCH = "refs/heads/"
_PULL = "refs/pr/"
_OLDEST_RELEASE = (2, 3)
"""The first release that commits to repositories of kernels."""
_NO_TOKEN = "`hf auth login`, or set `HF_TOKEN` to a token that may write"  # noqa: S105


def open_hub(*, bars: bool = False) -> HubClient:
    """The Hub that `HF_ENDPOINT` names, with the token from the usual places.

    Raises:
        ToolchainError: `huggingface_hub` is not installed.
        HubError: nobody listens at the address.
    """
    try:
        from huggingface_hub import HfApi, __version__, constants
    except ImportError as error:
        raise ToolchainError(
            "the Hub needs huggingface_hub", hint=install_command("huggingface_hub>=1.10")
        ) from error
    _require_release(__version__)
    if not constants.HF_HUB_OFFLINE:
        require_listener(constants.ENDPOINT)
    utils: Any = import_module("huggingface_hub.utils")
    utils.logging.set_verbosity(logging.CRITICAL)
    (utils.enable_progress_bars if bars else utils.disable_progress_bars)()
    return HubClient(HfApi(library_name="kbuild"))


def require_listener(endpoint: str) -> None:
    """Find out at once that nobody listens: `huggingface_hub` would retry for minutes.

    Raises:
        HubError: no connection can be made.
    """
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    address = urlsplit(endpoint)
    host = address.hostname or ""
    if not host or (address.scheme in getproxies() and not proxy_bypass(host)):
        return  # a proxy makes the connection
    port = address.port or {"http": 80}.get(address.scheme, 443)
    reason = ""
    for attempts_left in reversed(range(_CONNECTIONS)):
        try:
            socket.create_connection((host, port), timeout=_CONNECTION_S).close()
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
        if attempts_left:
            time.sleep(_PAUSE_S)
    raise HubError(
        f"the Hub at {redacted(endpoint).rstrip('/')} cannot be reached: {redacted(reason)}",
        hint="check the network, the proxy and `HF_ENDPOINT`",
    )


def _require_release(version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < _OLDEST_RELEASE:
        oldest = ".".join(map(str, _OLDEST_RELEASE))
        raise ToolchainError(
            f"huggingface_hub {version} does not upload kernels, {oldest} and newer do",
            hint=install_command("--upgrade", f"huggingface_hub>={oldest}"),
        )


class HubClient:
    """The calls to a Hub. Every method raises the errors of `repository`, and nothing else."""

    def __init__(self, api: HfApi) -> None:
        self._api = api
        self._account: Account | None = None
        self._trees: dict[tuple[Repo, str], RemoteFiles] = {}
        self._sent: dict[tuple[str, UploadFile], CommitOperationAdd] = {}

    @property
    def address(self) -> str:
        """Address of its pages, without a slash at the end and without credentials."""
        return redacted(str(self._api.endpoint)).rstrip("/")

    def whoami(self) -> Account:
        """The account of the token."""
        from huggingface_hub import get_token

        if not (self._api.token or get_token()):
            raise AccessDeniedError("there is no token for the Hub", hint=_NO_TOKEN)
        if self._account is None:  # the Hub counts these requests more strictly than others
            with _translated_errors("who the token belongs to"):
                self._account = account_of(self._api.whoami())
        return self._account

    def is_private(self, repo: Repo) -> bool:
        """True when others do not see the repository."""
        with _translated_errors(f"about {repo}"):
            return bool(self._api.repo_info(repo.id, repo_type=KERNEL).private)

    def refs(self, repo: Repo) -> Refs:
        """The heads as they are now."""
        with _translated_errors(f"for the branches of {repo}"):
            refs = self._api.list_repo_refs(repo.id, repo_type=KERNEL, include_pull_requests=True)
            pulls = {
                ref.ref.removeprefix(_PULL): ref.target_commit for ref in refs.pull_requests or ()
            }
            return Refs(
                {ref.ref.removeprefix(_BRANCH): ref.target_commit for ref in refs.branches},
                {int(number): commit for number, commit in pulls.items() if number.isdecimal()},
            )

    def tree(self, repo: Repo, commit: str) -> RemoteFiles:
        """Every file of a commit; asked for only once."""
        if (repo, commit) not in self._trees:
            self._trees[repo, commit] = self._listed(repo, commit)
        return self._trees[repo, commit]

    def _listed(self, repo: Repo, commit: str) -> RemoteFiles:
        from huggingface_hub import RepoFile

        with _translated_errors(f"for the files of {repo}"):
            entries = self._api.list_repo_tree(
                repo.id, recursive=True, revision=commit, repo_type=KERNEL
            )
            return {
                _path_of(entry): RemoteFile(
                    int(entry.size), str(entry.blob_id), entry.lfs.sha256 if entry.lfs else None
                )
                for entry in entries
                if isinstance(entry, RepoFile)
            }

    def read(self, repo: Repo, commit: str, path: str) -> bytes:
        """The content of a file."""
        with _translated_errors(f"for `{path}` of {repo}"):
            file = self._api.hf_hub_download(repo.id, path, revision=commit, repo_type=KERNEL)
            return Path(file).read_bytes()

    def create_repo(self, repo: Repo, *, private: bool) -> None:
        """Make a repository; nothing happens when it exists."""
        with _translated_errors(f"to make {repo}"):
            # None leaves the choice to the Hub: an organisation may have private ones by default.
            self._api.create_repo(repo.id, repo_type=KERNEL, private=private or None, exist_ok=True)

    def create_branch(self, repo: Repo, branch: str, commit: str) -> None:
        """Make a branch that points at a commit; `ConflictError` when it exists."""
        with _translated_errors(f"to make the branch `{branch}` of {repo}"):
            self._api.create_branch(repo.id, branch=branch, revision=commit, repo_type=KERNEL)

    def delete_branch(self, repo: Repo, branch: str) -> None:
        """Remove a branch; nothing happens when there is none."""
        try:
            with _translated_errors(f"to remove the branch `{branch}` of {repo}"):
                self._api.delete_branch(repo.id, branch=branch, repo_type=KERNEL)
        except NotFoundError:
            return

    def send(self, repo: Repo, revision: str, entries: Sequence[UploadFile]) -> None:
        """Bring the contents of large files to the Hub ahead of the commit; may be repeated."""
        operations = [self._operation(revision, entry) for entry in entries]
        with _translated_errors(f"to take the files of {repo}"):
            self._api.preupload_lfs_files(
                repo.id,
                operations,
                repo_type=KERNEL,
                revision=revision,
                # A commit that failed is tried again with the same contents.
                free_memory=False,
                gitignore_content="",  # a `.gitignore` in the repository must not drop files
            )

    def commit(
        self,
        repo: Repo,
        revision: str,
        adds: Sequence[UploadFile],
        deletes: Sequence[str],
        *,
        parent: str,
        message: str,
        pull: bool = False,
    ) -> Commit:
        """Commit on top of `parent`; `ConflictError` when the branch is elsewhere by now.

        With `pull`, a pull request against the branch `revision` is opened instead.
        """
        from huggingface_hub import CommitOperationDelete

        operations = [self._operation(revision, entry) for entry in adds]
        with _translated_errors(f"to commit to `{revision}` of {repo}"):
            commit = self._api.create_commit(
                repo.id,
                [*operations, *(CommitOperationDelete(path, is_folder=False) for path in deletes)],
                commit_message=message,
                repo_type=KERNEL,
                revision=revision,
                parent_commit=parent,
                create_pr=pull,
            )
        for entry in adds:
            self._sent.pop((revision, entry), None)
        return Commit(
            commit.oid, commit.pr_num if pull else None, commit.pr_url or "" if pull else ""
        )

    def _operation(self, revision: str, entry: UploadFile) -> CommitOperationAdd:
        """The library's own record of a file; it remembers what was sent."""
        from huggingface_hub import CommitOperationAdd

        key = revision, entry
        if key not in self._sent:
            self._sent[key] = CommitOperationAdd(entry.path, entry.source)
        return self._sent[key]


def _path_of(entry: RepoFile) -> str:
    """The path of a listed file.

    Raises:
        HubError: it leads out of the repository.
    """
    path: str = entry.path
    if not is_inside(path):
        raise HubError(f"the Hub lists a file that leads out of the repository: `{path}`")
    return path


def account_of(answer: Mapping[str, Any]) -> Account:
    """The account that `whoami` names.

    Raises:
        DamagedFileError: it is of another form.
    """
    with reading("whoami", "an answer of the Hub", hint="try again later"):
        organisations = {
            str(org["name"]): str(org.get("roleInOrg") or "") for org in answer.get("orgs", ())
        }
        token = (answer.get("auth") or {}).get("accessToken") or {}
        role = token.get("role")
        scopes = _write_scopes(token.get("fineGrained") or {}) if role == "fineGrained" else None
        writes = {"read": False, "write": True}.get(str(role))
        return Account(str(answer.get("name", "")), organisations, writes, scopes)


def _write_scopes(answer: dict[str, Any]) -> frozenset[str]:
    """The names of what a fine-grained token may write to."""
    return frozenset(
        str((scope.get("entity") or {}).get("name", ""))
        for scope in answer.get("scoped", ())
        if any(p.startswith("repo") and p.endswith("write") for p in scope.get("permissions", ()))
    )


@contextmanager
def _translated_errors(what: str) -> Iterator[None]:
    """Raise errors of `huggingface_hub` as errors of kbuild."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about cards without metadata, and the like
            yield
    except KbuildError:
        raise
    except Exception as error:
        raise translate_hub_error(error, what) from error
