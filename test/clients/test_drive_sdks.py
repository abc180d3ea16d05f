"""SDKs and agent frameworks: each asks for what its users ask for, and its user sees what the program said."""

import pytest
from clients.drive import environments
from clients.drive.environments import ENVIRONMENTS
from clients.drive.sdks import CLIENTS

from support.driving import DRIVE_SECONDS, FEATURES, Client, Drive, Tell, drive

pytestmark = [pytest.mark.clients, pytest.mark.timeout(DRIVE_SECONDS + 20)]

QUICK = frozenset(client.name for client in CLIENTS if client.environment in environments.QUICK) - {
    "openai-python, WebSocket", "Agents SDK Python, WebSocket", "openai-node 7, WebSocket",
}  # fmt: skip


def is_quick(client: Client, feature: str) -> bool:
    """Whether `make test` drives it."""
    return client.name in QUICK and feature in ("plain", "stream", "tools", "error") and feature in client.features


CASES = [
    pytest.param(client, feature, id=f"{client.name}: {feature}", marks=[pytest.mark.quick] * is_quick(client, feature))
    for client in CLIENTS
    for feature in FEATURES
]
_driven: dict[str, dict[tuple[str, str], Drive]] = {}


def chosen(session: pytest.Session, one: Client) -> list[tuple[Client, str]]:
    """All that this run of pytest was asked for with the same driver and environment: it goes through one process."""
    asked = [item.callspec.params for item in session.items if isinstance(item, pytest.Function) and is_case(item)]
    cases = [(case["client"], case["feature"]) for case in asked]
    return [
        (client, feature)
        for client, feature in cases
        if (client.driver, client.environment) == (one.driver, one.environment) and feature in client.features
    ]


def is_case(item: pytest.Function) -> bool:
    return item.originalname == test_a_client_shows_its_user_what_the_program_said.__name__


@pytest.mark.parametrize(("client", "feature"), CASES)
async def test_a_client_shows_its_user_what_the_program_said(
    client: Client, feature: str, tell: Tell, request: pytest.FixtureRequest
) -> None:
    tell(client.name, feature, client.cannot.get(feature))
    if feature in client.cannot:
        return
    environment = ENVIRONMENTS[client.environment]
    if not environment.installed:
        pytest.skip(environment.missing)
    key = f"{client.environment} {client.driver}"
    if key not in _driven:
        _driven[key] = await drive(chosen(request.session, client), environment.folder, environment.interpreter)
    asked = FEATURES[feature]
    _driven[key][client.mode, feature].judge(asked, client.requests.get(feature, asked.requests))
