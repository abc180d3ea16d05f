"""The smallest program: what `serve()` returns is the answer.

Serve it with `mellea-responses serve examples/hello/program.py`.
"""


def serve(input, requirements=None, model_options=None):
    return f"You said: {input[-1].content}"
