"""Stands in for SGLang in tests: see srt/entrypoints/engine.py."""

__version__ = "0.0-stand-in-sglang"
