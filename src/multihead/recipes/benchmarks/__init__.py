"""Run files for public datasets that cannot be redistributed, and scripts that prepare them."""
