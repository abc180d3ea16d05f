"""What a case leaves open and this server decides, and what waits for parts that are not built."""

from typing import Any

SETUP = {
    "keys": "api_keys",
    "allowed_origins": "cors_origins",
    "store_ttl_s": "response_ttl",
    "store_max_entries": "store_max_entries",
    "store_max_bytes": "store_max_bytes",
    "max_body_bytes": "max_body_bytes",
    "max_output_tokens": "max_output_tokens",
    "threads": "threads",
}
"""A case's plain words for settings, and ours."""

SETTINGS: dict[str, dict[str, Any]] = {
    # Any name is accepted unless the owner lists names; then an unknown one is refused.
    "62-unknown-model-name": {"model_names": ("served-program",)},
}
"""Settings that the outcome of a case depends on, beside its own `setup`."""

PINNED: dict[tuple[str, int], int] = {
    # Headers leave before the program runs, so its failure is told inside the stream.
    ("09-error-frame-is-seen-by-the-sdk", 0): 200,
    # A program that ignores a forced choice has failed; the request was in order.
    ("18-named-choice-not-silently-ignored", 0): 500,
    # Coding clients declare hosted tools unasked: left out, and said so in a header.
    ("19-mixed-tool-list", 0): 200,
    # `additional_tools` is an item that a client sends; its tools count as declared.
    ("23-unknown-item-type", 0): 200,
    # The route exists for POST; GET is for WebSocket upgrades.
    ("27-missing-or-wrong-fields", 5): 405,
    # Unknown, expired and never stored look the same, and are the request's fault.
    ("40-store-false-is-not-kept", 2): 400,
    ("41-other-key-sees-nothing", 3): 400,
    # A program gets every option and may use it.
    ("50-ignored-options-are-not-silent", 1): 200,
    # Arguments are the model's own words and may be broken; the program sees them as they are.
    ("52-string-arguments-for-a-mapping-template", 1): 200,
    # A page of an origin that the owner did not name may not even ask.
    ("59-foreign-pages-cannot-drive-it", 0): 403,
    ("59-foreign-pages-cannot-drive-it", 1): 403,
    ("59-foreign-pages-cannot-drive-it", 2): 403,
    ("60-every-route-needs-the-key", 4): 401,
    ("60-every-route-needs-the-key", 5): 401,
    # The key comes before the question whether there is such a route.
    ("60-every-route-needs-the-key", 7): 401,
    ("60-every-route-needs-the-key", 8): 401,
    # A program has no context window of its own.
    ("61-body-sizes", 0): 200,
    ("61-body-sizes", 1): 200,
    ("62-unknown-model-name", 1): 404,
    # Half a surrogate pair is no character.
    ("63-framework-defaults", 1): 400,
    # Squeezed bodies are read, and measured by what they become.
    ("63-framework-defaults", 3): 200,
    # An unknown key is ignored; a template under a known key is refused.
    ("64-template-in-the-request", 0): 200,
    ("64-template-in-the-request", 1): 400,
}
"""Our one status where a case allows several, by case and turn."""
