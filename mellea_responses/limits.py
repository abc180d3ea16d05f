"""How much one request may hold. Far above what agents send, far below what would keep the server from others.

The specification's own limits for strings stand with the fields; what an owner can choose is a setting. docs/limits.md
lists all.
"""

MIB = 2**20

MAX_ITEMS = 10_000
"""Items of an input, or messages of a chat."""
MAX_PARTS = 20_000
"""Content parts of all items."""
MAX_TOOLS = 1024
"""Tools, those inside namespaces included."""
MAX_TOOL_BYTES = 512 * 1024
"""One tool as JSON, its names, descriptions and schema."""
MAX_TOOLS_BYTES = 8 * MIB
"""All tools as JSON."""
MAX_STRICT_BYTES = MIB
"""Schemas of strict tools as JSON; each is compiled before anything runs."""
MAX_DEPTH = 128
"""Lists and objects inside each other, in whatever JSON a client writes freely."""
MAX_VALUES = 200_000
"""Values of the JSON that clients write freely; a list or object counts as one, and so do three plain values."""
MAX_FIELD_BYTES = MIB
"""A field of a request as JSON, but for the input, the instructions and the tools."""
MAX_NAMES = 1024
"""Entries of `include` and `requirements`."""
MAX_SHORT = 1024
"""Characters of names and keys in a request."""
