"""Run files for public data that may not be shipped, and what makes their files."""
