"""A Mellea program, or a bare Hugging Face model, behind the OpenAI Responses API.

Nothing is imported here: the command, a program's author and the protocol's types each pay only for what they use.
"""

__version__ = "0.1.0"
