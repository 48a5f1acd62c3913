"""Readers of dataset files: one module per format."""
