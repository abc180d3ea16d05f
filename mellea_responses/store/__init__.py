"""Where finished responses live: a port and its tenants."""

from mellea_responses.store.memory import MemoryStore
from mellea_responses.store.port import Record, Segment, Store, StoreFull

__all__ = ["MemoryStore", "Record", "Segment", "Store", "StoreFull"]
