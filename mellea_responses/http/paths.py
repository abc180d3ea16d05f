"""Every route of the API answers with and without the version."""


def paths(path: str) -> list[str]:
    """`/v1/…` and `/…`."""
    return [f"/v1{path}", path]
