"""Datasets: files to examples, tokens and batches."""
