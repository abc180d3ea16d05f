"""A tool that the program runs itself: the client sees its receipt, and has nothing to do.

A receipt is an item of a hosted tool. `ItemOpen` tells that the tool has started, `ItemDone` what it gave. What the
guard checks is calls for the client; a receipt asks for nothing, so the client need not have declared the tool.

Serve it with `mellea-responses serve examples/server_tools/program.py`.
"""

import asyncio
import json

from mellea_responses.turn import ItemDone, ItemOpen

HEIGHTS = {"Dachstein": 2995, "Triglav": 2864}


async def height(mountain: str) -> int:
    await asyncio.sleep(0.05)  # a tool takes its time, and the client sees it running
    return HEIGHTS[mountain]


async def serve(input, requirements=None, model_options=None):
    yield "Let me look that up. "
    found = {}
    for name in [name for name in HEIGHTS if name in input[-1].content]:
        receipt = {
            "type": "mcp_call",
            "server_label": "mountains",
            "name": "height",
            "arguments": json.dumps({"mountain": name}),
        }
        yield ItemOpen({**receipt, "status": "in_progress"})
        found[name] = await height(name)
        yield ItemDone({**receipt, "status": "completed", "output": str(found[name])})
    yield f"The highest is {max(found, key=found.get)}." if found else "I know no such mountain."
