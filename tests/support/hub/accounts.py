"""Who may do what: tokens, users and organisations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.support.hub.answers import Refused

Role = Literal["read", "write"]


@dataclass(frozen=True)
class Account:
    """What one token stands for."""

    user: str
    role: Role = "write"
    organisations: tuple[str, ...] = ()

    def may_write(self, namespace: str) -> bool:
        return self.role == "write" and namespace in (self.user, *self.organisations)

    def may_read(self, namespace: str) -> bool:
        """Whether private repositories of the namespace are visible."""
        return namespace in (self.user, *self.organisations)


@dataclass(frozen=True)
class Accounts:
    """All tokens, and the organisations whose kernels the client trusts."""

    tokens: Mapping[str, Account] = field(default_factory=dict)
    trusted: frozenset[str] = frozenset()

    def identify(self, authorization: str | None) -> Account | None:
        """The account of a request; None for a stranger.

        Raises:
            Refused: the token is not known.
        """
        if not authorization:
            return None
        token = authorization.removeprefix("Bearer ").strip()
        if token not in self.tokens:
            raise Refused(401, "Invalid credentials in Authorization header")
        return self.tokens[token]

    def namespaces(self) -> set[str]:
        members = {name for account in self.tokens.values() for name in account.organisations}
        return members | {account.user for account in self.tokens.values()} | self.trusted
