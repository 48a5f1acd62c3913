"""Our speed and memory beside the peers', as ratios measured here."""
