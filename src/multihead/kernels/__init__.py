"""Optimized implementations, each behind the signature of its reference. Imports torch and machine only."""
