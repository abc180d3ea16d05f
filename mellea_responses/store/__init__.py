"""Where finished responses live: a port and its tenants."""

from mellea_responses.store.memory import MemoryStore
from mellea_responses.store.port import ParentMissing, Record, Segment, Store, StoreFull

__all__ = ["MemoryStore", "ParentMissing", "Record", "Segment", "Store", "StoreFull"]
