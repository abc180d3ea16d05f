"""Text that arrives while it is made: an async generator, and each piece it yields leaves at once.

A plain generator does the same; it runs in a thread instead of a loop.

Serve it with `mellea-responses serve examples/streaming/program.py`.
"""

import asyncio


async def serve(input, requirements=None, model_options=None):
    for second in (3, 2, 1):
        yield f"{second}... "
        await asyncio.sleep(0.1)
    yield "lift-off!"
