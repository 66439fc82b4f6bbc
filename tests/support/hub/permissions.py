"""Who may put something on a ref: writers anywhere, others on pull requests of their own."""

from __future__ import annotations

import re

from tests.support.hub.answers import no_revision
from tests.support.hub.repository import Repository
from tests.support.hub.request import Request

_PULL = re.compile(r"refs/pr/(\d+)")


def open_for(request: Request, revision: str | None, *, new_pull: bool) -> Repository:
    """The repository of a request that wants to add something.

    Args:
        request: what is asked.
        revision: the branch or pull request; None when the request does not say.
        new_pull: the change becomes a pull request, which everybody may open who is logged in.

    Raises:
        Refused: the account may not, or there is no such revision.
    """
    repository = request.repository()
    account = request.logged_in()
    if new_pull:
        return repository
    found = _PULL.fullmatch(revision or "")
    if found:
        pull = repository.facts.pulls.get(int(found[1]))
        if pull is None:
            raise no_revision(revision or "")
        if pull.author == account.user and account.role == "write":
            return repository
    return request.writable()
