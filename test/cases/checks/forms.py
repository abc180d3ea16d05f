"""The form of an answer that a model is held to."""

import json
from typing import Any

import torch
from cases.checks.registry import check
from cases.checks.vocabulary import message_text
from cases.model import ModelStandIn
from cases.play import Played, turns_of
from jsonschema_rs import validator_for

from mellea_responses.engine.constrain import Grammars
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.turn import Format


def form_of(played: Played) -> dict[str, Any]:
    """The schema that the case asks for."""
    form: dict[str, Any] = turns_of(played.case)[0]["body"]["text"]["format"]["schema"]
    return form


def fits(played: Played) -> bool:
    """Whether each answer is whole, and a value of the schema."""
    form = validator_for(form_of(played))
    return all(r["status"] == "completed" and form.is_valid(json.loads(message_text(r))) for r in played.responses)


@check("If status is completed, the text parses and fits the schema, in both modes.")
def _(played: Played) -> None:
    assert len(played.responses) == 2
    assert fits(played)


@check("Accepted; a completed text fits the schema with references resolved.")
def _(played: Played) -> None:
    assert len(played.responses) == 1
    assert fits(played)


@check("text.format is echoed with the key named schema.")
def _(played: Played) -> None:
    for response in played.responses:
        assert response["text"]["format"]["schema"] == form_of(played)


@check(
    "With a capable model the list is not empty; with a tiny one, the mask after an open bracket allows a quote or "
    "white space, not only the closing bracket."
)
def _(played: Played) -> None:
    assert isinstance(played.program, ModelStandIn)
    tokenizer = played.program.network.tokenizer
    grammars = Grammars(tokenizer, len(tokenizer), frozenset([tokenizer.eos_token_id]))
    asked = GenerateRequest(messages=(), format=Format("json_schema", "answer", form_of(played)))
    grammar = grammars.for_answer(asked, "", taught=False)
    assert grammar is not None
    for token in tokenizer.encode('{"items": [', add_special_tokens=False):
        grammar.take(token)
    allowed = torch.isfinite(grammar.narrow(torch.zeros(len(tokenizer))))

    assert fits(played)
    for text in ('"', " ", "\n", "]"):
        [token] = tokenizer.encode(text, add_special_tokens=False)
        assert allowed[token]
