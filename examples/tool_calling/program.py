"""A tool that the client runs: the program asks for it, and answers when the output has come.

`turn.tools` is what the client declared; a call of anything else would not get past the guard.

Serve it with `mellea-responses serve examples/tool_calling/program.py`.
"""

import json
import re

from mellea_responses.turn import Call, CallArgs, CallEnd


def serve(input, turn, requirements=None, model_options=None):
    if input[-1].role == "tool":
        yield f"That makes {input[-1].content}."
        return
    numbers = [int(number) for number in re.findall(r"\d+", input[-1].content)]
    if len(numbers) != 2 or not turn.tools:
        yield "Give me two numbers, and a tool to add them with."
        return
    yield "I had better ask. "
    yield Call("sum", turn.tools[0].name)
    yield CallArgs("sum", json.dumps({"a": numbers[0], "b": numbers[1]}))
    yield CallEnd("sum")
