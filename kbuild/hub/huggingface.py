"""The Hub through `huggingface_hub`, which knows its addresses, its storage and where tokens are.

Its own words are not passed on: they hold addresses with signatures, and its log goes to stderr.
What it raises is said again in words of kbuild, with secrets taken out.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.errors import HubError, KbuildError, ToolchainError
from kbuild.fileset import is_inside
from kbuild.hub.entry import Entry
from kbuild.hub.layout import BUILD
from kbuild.hub.refusals import in_words
from kbuild.hub.remote import Denied, Hub, Missing
from kbuild.hub.values import Account, Commit, Refs, RemoteFile, Repo, Tree
from kbuild.redact import redacted
from kbuild.untrusted import reading

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, HfApi, RepoFile

_BRANCH = "refs/heads/"
_PULL = "refs/pr/"
_FIRST = (2, 3)
"""The first release that commits to repositories of kernels."""
_NO_TOKEN = "`hf auth login`, or set `HF_TOKEN` to a token that may write"  # noqa: S105


def open_hub(*, bars: bool = False, endpoint: str | None = None, token: str | None = None) -> Hub:
    """The Hub that `HF_ENDPOINT` names, with the token from the usual places.

    Args:
        bars: whether `huggingface_hub` may draw bars on stderr while it sends.
        endpoint: another Hub.
        token: another token.

    Raises:
        ToolchainError: `huggingface_hub` is not installed.
    """
    try:
        from huggingface_hub import HfApi, __version__
    except ImportError as error:
        raise ToolchainError(
            "the Hub needs huggingface_hub", hint="pip install 'kbuild[hub]'"
        ) from error
    _refuse_old(__version__)
    utils: Any = import_module("huggingface_hub.utils")
    utils.logging.set_verbosity(logging.CRITICAL)
    (utils.enable_progress_bars if bars else utils.disable_progress_bars)()
    return HuggingFace(HfApi(endpoint=endpoint, token=token, library_name="kbuild"))


def _refuse_old(version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < _FIRST:
        oldest = ".".join(map(str, _FIRST))
        raise ToolchainError(
            f"huggingface_hub {version} does not upload kernels, {oldest} and newer do",
            hint=f"pip install --upgrade 'huggingface_hub>={oldest}'",
        )


class HuggingFace:
    """See `Hub`."""

    def __init__(self, api: HfApi) -> None:
        self._api = api
        self._account: Account | None = None
        self._trees: dict[tuple[Repo, str], Tree] = {}
        self._sent: dict[tuple[str, Entry], CommitOperationAdd] = {}

    @property
    def address(self) -> str:
        """See `Hub.address`."""
        return redacted(str(self._api.endpoint)).rstrip("/")

    def whoami(self) -> Account:
        """See `Hub.whoami`."""
        from huggingface_hub import get_token

        if not (self._api.token or get_token()):
            raise Denied("there is no token for the Hub", hint=_NO_TOKEN)
        if self._account is None:  # the Hub counts these requests more strictly than others
            with _asking("who the token belongs to"):
                self._account = account_of(self._api.whoami())
        return self._account

    def is_private(self, repo: Repo) -> bool:
        """See `Hub.is_private`."""
        with _asking(f"about {repo}"):
            return bool(self._api.repo_info(repo.id, repo_type=repo.kind).private)

    def refs(self, repo: Repo) -> Refs:
        """See `Hub.refs`."""
        with _asking(f"for the branches of {repo}"):
            found = self._api.list_repo_refs(
                repo.id, repo_type=repo.kind, include_pull_requests=True
            )
            pulls = {
                ref.ref.removeprefix(_PULL): ref.target_commit for ref in found.pull_requests or ()
            }
            return Refs(
                {ref.ref.removeprefix(_BRANCH): ref.target_commit for ref in found.branches},
                {int(number): commit for number, commit in pulls.items() if number.isdecimal()},
            )

    def tree(self, repo: Repo, commit: str) -> Tree:
        """See `Hub.tree`."""
        if (repo, commit) not in self._trees:
            self._trees[repo, commit] = self._listed(repo, commit)
        return self._trees[repo, commit]

    def _listed(self, repo: Repo, commit: str) -> Tree:
        from huggingface_hub import RepoFile

        with _asking(f"for the files of {repo}"):
            entries = self._api.list_repo_tree(
                repo.id, recursive=True, revision=commit, repo_type=repo.kind
            )
            return {
                _path_of(entry): RemoteFile(
                    int(entry.size), str(entry.blob_id), entry.lfs.sha256 if entry.lfs else None
                )
                for entry in entries
                if isinstance(entry, RepoFile)
            }

    def read(self, repo: Repo, commit: str, path: str) -> bytes:
        """See `Hub.read`."""
        with _asking(f"for `{path}` of {repo}"):
            file = self._api.hf_hub_download(repo.id, path, revision=commit, repo_type=repo.kind)
            return Path(file).read_bytes()

    def dates(self, repo: Repo, commit: str) -> Mapping[str, datetime]:
        """See `Hub.dates`."""
        from huggingface_hub import RepoFolder

        try:
            with _asking(f"when {repo} was changed"):
                entries = self._api.list_repo_tree(
                    repo.id, BUILD, revision=commit, repo_type=repo.kind, expand=True
                )
                folders = [entry for entry in entries if isinstance(entry, RepoFolder)]
        except Missing:
            return {}
        dated = ((entry.path.removeprefix(f"{BUILD}/"), entry.last_commit) for entry in folders)
        return {name: last.date for name, last in dated if last is not None}

    def create_repo(self, repo: Repo, *, private: bool) -> None:
        """See `Hub.create_repo`."""
        with _asking(f"to make {repo}"):
            self._api.create_repo(
                repo.id, repo_type=repo.kind, private=private or None, exist_ok=True
            )

    def create_branch(self, repo: Repo, branch: str, commit: str) -> None:
        """See `Hub.create_branch`."""
        with _asking(f"to make the branch `{branch}` of {repo}"):
            self._api.create_branch(repo.id, branch=branch, revision=commit, repo_type=repo.kind)

    def delete_branch(self, repo: Repo, branch: str) -> None:
        """See `Hub.delete_branch`."""
        try:
            with _asking(f"to remove the branch `{branch}` of {repo}"):
                self._api.delete_branch(repo.id, branch=branch, repo_type=repo.kind)
        except Missing:
            return

    def send(self, repo: Repo, revision: str, entries: Sequence[Entry]) -> None:
        """See `Hub.send`."""
        operations = [self._operation(revision, entry) for entry in entries]
        with _asking(f"to take the files of {repo}"):
            self._api.preupload_lfs_files(
                repo.id,
                operations,
                repo_type=repo.kind,
                revision=revision,
                free_memory=False,
                gitignore_content="",  # a `.gitignore` in the repository must not drop files
            )

    def commit(
        self,
        repo: Repo,
        revision: str,
        adds: Sequence[Entry],
        deletes: Sequence[str],
        *,
        parent: str,
        message: str,
        pull: bool = False,
    ) -> Commit:
        """See `Hub.commit`."""
        from huggingface_hub import CommitOperationDelete

        operations = [self._operation(revision, entry) for entry in adds]
        with _asking(f"to commit to `{revision}` of {repo}"):
            made = self._api.create_commit(
                repo.id,
                [*operations, *(CommitOperationDelete(path, is_folder=False) for path in deletes)],
                commit_message=message,
                repo_type=repo.kind,
                revision=revision,
                parent_commit=parent,
                create_pr=pull,
            )
        for entry in adds:
            self._sent.pop((revision, entry), None)
        return Commit(made.oid, made.pr_num if pull else None, made.pr_url or "" if pull else "")

    def _operation(self, revision: str, entry: Entry) -> CommitOperationAdd:
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


def account_of(told: Mapping[str, Any]) -> Account:
    """What `whoami` answers, as far as it matters here.

    Raises:
        DamagedFileError: it is of another form.
    """
    with reading("whoami", "an answer of the Hub", hint="try again later"):
        return _account(told)


def _account(told: Mapping[str, Any]) -> Account:
    organisations = {
        str(org["name"]): str(org.get("roleInOrg") or "") for org in told.get("orgs", ())
    }
    token = (told.get("auth") or {}).get("accessToken") or {}
    role = token.get("role")
    scopes = _scopes(token.get("fineGrained") or {}) if role == "fineGrained" else None
    writes = {"read": False, "write": True}.get(str(role))
    return Account(str(told.get("name", "")), organisations, writes, scopes)


def _scopes(told: dict[str, Any]) -> frozenset[str]:
    """The names of what a fine-grained token may write to."""
    return frozenset(
        str((scope.get("entity") or {}).get("name", ""))
        for scope in told.get("scoped", ())
        if any(p.startswith("repo") and p.endswith("write") for p in scope.get("permissions", ()))
    )


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Say what goes wrong in kbuild's own words."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about cards without metadata, and the like
            yield
    except KbuildError:
        raise
    except Exception as error:
        raise in_words(error, what) from error
