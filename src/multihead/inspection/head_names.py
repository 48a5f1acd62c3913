"""Pattern names of heads, by readable rules.

A head that gives at least half of its attention to other occurrences of the query's word, wherever a word occurs twice,
is named for that, whatever it does elsewhere. Otherwise a head is named by the target that gets at least half of its
attention: the largest of the shares below. Between 0.3 and 0.5, the name has "partly". Without such a target it is
"broad" if its entropy is near the maximum, "near" if its mean distance is at most two tokens, and "mixed" otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

HALF, SOME = 0.5, 0.3
EVEN = 0.9  # entropy relative to its maximum
NEAR = 2.0  # tokens

TWINS = ("same", "after")  # means over repeated words only
# share -> name; ties go to the first
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
    """Return the name of a head with these statistics; undefined ones are nan."""
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
