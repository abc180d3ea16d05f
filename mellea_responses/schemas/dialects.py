"""What clients write, as draft 2020-12 and the engine of patterns have it."""

from mellea_responses.schemas.patterns import spelled
from mellea_responses.schemas.references import Node, schemas


def modernise(schema: Node) -> None:
    """Changes a schema in place: patterns, and what only older drafts had where no `$schema` says which one it is.

    Servers of tools write draft 7, and what passes them on leaves `$schema` out.
    """
    unnamed = "$schema" not in schema
    for _, node in schemas(schema, ""):
        if isinstance(node.get("pattern"), str):
            node["pattern"] = spelled(node["pattern"])
        if isinstance(node.get("patternProperties"), dict):
            node["patternProperties"] = {spelled(key): value for key, value in node["patternProperties"].items()}
        if unnamed:
            _from_older(node)


def _from_older(node: Node) -> None:
    if isinstance(node.get("items"), list):
        node["prefixItems"] = node.pop("items")
        if "additionalItems" in node:
            node["items"] = node.pop("additionalItems")
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and bound in node:
            node[exclusive] = node.pop(bound)
