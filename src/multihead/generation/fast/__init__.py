"""Optimized CPU decoder: the same tokens as the plain one, with less work per step."""
