"""Capabilities of this machine, measured: CPUs, memory, precision, installed extras."""
