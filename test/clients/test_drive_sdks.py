"""SDKs and agent frameworks: each asks for what its users ask for, and its user sees what the program said."""

import pytest
from clients.drive.environments import ENVIRONMENTS

from support.driving import FEATURES, Client, Drive, Tell, drive

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]

WHOLE = {"stream": "-", "cut": "-"}  # nothing is streamed
CLIENTS = (
    Client("openai-python", "openai-agents", "use_openai.py", "plain", WHOLE),
    Client("openai-python, stream", "openai-agents", "use_openai.py", "stream"),
    Client("openai-python, WebSocket", "openai-agents", "use_openai.py", "websocket"),
    Client("Agents SDK Python", "openai-agents", "use_agents.py", "plain", WHOLE),
    Client("Agents SDK Python, stream", "openai-agents", "use_agents.py", "stream"),
    Client("Agents SDK Python, WebSocket", "openai-agents", "use_agents.py", "websocket"),
)
CASES = [pytest.param(client, feature, id=f"{client.name}: {feature}") for client in CLIENTS for feature in FEATURES]
_driven: dict[str, dict[str, Drive]] = {}


@pytest.mark.parametrize(("client", "feature"), CASES)
async def test_a_client_shows_its_user_what_the_program_said(client: Client, feature: str, tell: Tell) -> None:
    tell(client.name, feature, client.cannot.get(feature))
    if feature in client.cannot:
        return
    environment = ENVIRONMENTS[client.environment]
    if not environment.installed:
        pytest.skip(environment.missing)
    if client.name not in _driven:
        _driven[client.name] = await drive(client, environment.folder, environment.interpreter(client.newer_node))
    asked = FEATURES[feature]
    _driven[client.name][feature].judge(asked, client.requests.get(feature, asked.requests))
