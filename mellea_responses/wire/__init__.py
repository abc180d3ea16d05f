"""The protocol's objects as they cross the wire: Open Responses 2026-04-24 and what real clients send beyond it.

`items` and `response` are the canonical forms we keep and emit; `params` is what clients may send; `decode` reads
bodies strictly and turns every complaint into a message with a path.
"""
