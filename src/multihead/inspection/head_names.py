"""A short name for what a head does, by rules that can be read.

A head that gives at least half of its attention to the query's own word elsewhere, wherever the word stands twice, is
named for that, whatever it does with all other words. Else a head is named by the place that gets at least half of its
attention: the largest of the shares below. Between three tenths and a half, the name says "partly". Without such a
place it is "broad" if it spreads as evenly as it can, "near" if it looks two tokens away or less on average, and
"mixed" otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

HALF, SOME = 0.5, 0.3
EVEN = 0.9  # entropy, as a share of the largest that is possible
NEAR = 2.0  # tokens

TWINS = ("same", "after")  # means over the words that stand twice only
# share -> name, and of equal shares the first
NAMES = {
    "previous": "previous token",
    "next": "next token",
    "same": "same word",
    "after": "copies what followed",  # an induction head (Olsson et al. 2022)
    "separator": "separator sink",
    "first": "first-token sink",
    "punctuation": "punctuation",
    "self": "itself",
}


def name_head(line: Mapping[str, float]) -> str:
    """The name of a head with these statistics; those that mean nothing here are nan."""
    shares = {name: share for name in NAMES if (share := line.get(name, 0.0)) == share}  # nan is not itself
    twins = {name: shares[name] for name in TWINS if shares.get(name, 0.0) >= HALF}
    best = max(twins or shares, key=lambda name: shares[name])
    if shares[best] >= HALF:
        return NAMES[best]
    if line.get("spread", 0.0) >= EVEN:
        return "broad"
    if shares[best] >= SOME:
        return f"partly {NAMES[best]}"
    return "near" if line.get("distance", NEAR + 1) <= NEAR else "mixed"
