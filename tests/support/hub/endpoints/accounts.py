"""Who is asking, which organisations are trusted, and whether a card's metadata can be read."""

from __future__ import annotations

from typing import Any

from tests.support.hub.answers import Answer, Refused, reply
from tests.support.hub.request import Request, route


@route("GET", "/api/whoami-v2")
def whoami(request: Request) -> Answer:
    account = request.logged_in()
    organisations = [
        {"type": "org", "name": name, "fullname": name, "roleInOrg": account.role}
        for name in account.organisations
    ]
    token = {"displayName": "test", "role": account.role}
    return reply(
        {
            "type": "user",
            "name": account.user,
            "fullname": account.user,
            "isPro": False,
            "orgs": organisations,
            "auth": {"type": "access_token", "accessToken": token},
        }
    )


@route("GET", "/api/organizations/(?P<organisation>[^/]+)/overview")
def overview(request: Request) -> Answer:
    """The client loads kernels of trusted publishers without being told to trust them."""
    name = request["organisation"]
    accounts = request.hub.accounts
    if name not in accounts.namespaces():
        raise Refused(404, "This organization does not exist")
    trusted = name in accounts.trusted
    return reply({"name": name, "fullname": name, "trustedKernelPublisher": trusted})


@route("GET", "/api/agent-harnesses")
def harnesses(request: Request) -> Answer:
    """huggingface_hub asks once a day which environment variables name an agent: none do here."""
    return reply({"standardEnvVars": [], "harnesses": {}})


@route("POST", "/api/validate-yaml")
def validate(request: Request) -> Answer:
    """The metadata of a README, which huggingface_hub has checked before it commits one."""
    content = str(request.body.json().get("content", ""))
    errors, warnings = _judge(content)
    return reply({"errors": errors, "warnings": warnings}, 400 if errors else 200)


def _judge(content: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    import yaml  # type: ignore[import-untyped]

    parts = content.split("---\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return [], [{"message": "empty or missing yaml metadata in repo card"}]
    try:
        data: Any = yaml.safe_load(parts[1])
    except yaml.YAMLError as error:
        return [{"message": f"YAML: {error}"}], []
    if not isinstance(data, dict):
        return [{"message": "the metadata is not a mapping"}], []
    return [], []
