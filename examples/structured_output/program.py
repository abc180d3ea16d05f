"""An answer in the form that the client asks for: a pydantic model, or any JSON value, becomes JSON text.

`format` is the client's schema as a pydantic class, for handing on to a model. Whatever is returned is checked against
the schema when it is strict: a client never gets an answer of another form.

Serve it with `mellea-responses serve examples/structured_output/program.py`.
"""

import re

from pydantic import BaseModel


class Event(BaseModel):
    name: str
    people: list[str]


def serve(input, requirements=None, model_options=None, format=None):
    people = re.findall(r"[A-Z][a-z]+", input[-1].content)[1:]
    return Event(name="lunch", people=people)
