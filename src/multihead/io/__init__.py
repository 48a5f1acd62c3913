"""File access: bounded reads, atomic writes, weights, GGUF, the hub, manifests."""
