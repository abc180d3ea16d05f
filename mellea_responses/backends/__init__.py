"""Mellea backends: `transformers` over our own engine."""
