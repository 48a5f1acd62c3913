"""Files to records: one module per format."""
