"""From files to examples, tokens and batches."""
