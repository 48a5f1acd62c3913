"""JSON records that carry a checksum of themselves, so that one changed bit in them is seen.

A manifest of other files' sums is the one file that nothing else vouches for. Two keys are added: `format`, and `seal`,
the SHA-256 of everything else. Keys are strict: a record from before has neither of the two, and no single change makes
a sealed record look like one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

FORMAT = 2  # 1 had no seal, and did not name its format
DIGEST = re.compile(r"[0-9a-f]{64}")


def checksum(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record's content, whatever the order of its keys and the white space of its file."""
    # As it comes back from a file: there, keys that were numbers are strings, and sort otherwise.
    plain = json.loads(json.dumps(record))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def seal(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with its format in front and its checksum behind."""
    content = {"format": FORMAT, **record}
    return {**content, "seal": checksum(content)}


def unseal(
    record: Mapping[str, Any], where: str, required: Collection[str], optional: Collection[str] = (), fix: str = ""
) -> dict[str, Any]:
    """Return the content of a record after its checksum was compared; of one from before, after its keys were.

    Raises ValueError, which begins with `where` and ends with `fix`.
    """
    content = {name: value for name, value in record.items() if name not in ("format", "seal")}
    stamps = len(record) - len(content)
    intact = stamps == 2 and record["seal"] == checksum({name: record[name] for name in record if name != "seal"})
    end = f"; {fix}" if fix else ""
    if intact and record["format"] != FORMAT:
        raise ValueError(
            f"{where}: format {str(record['format'])[:20]}, this version reads up to {FORMAT}; upgrade multihead"
        )
    if odd := next((name for name in content if name not in required and name not in optional), None):
        raise ValueError(f"{where}: {odd[:80]!r} is no key of it: damaged, or edited{end}")
    if missing := next((name for name in required if name not in content), None):
        raise ValueError(f"{where}: {missing!r} is missing: damaged, or edited{end}")
    if stamps and not intact:
        raise ValueError(f"{where}: not what was written (its own checksum does not fit): damaged, or edited{end}")
    return content


def check_digests(digests: Any, where: str, needed: Collection[str], fix: str = "") -> dict[str, str]:
    """Return a table of files and their SHA-256 that is one, and that names at least the `needed` files."""
    end = f"; {fix}" if fix else ""
    if not isinstance(digests, dict):
        raise ValueError(f"{where}: sha256 is no table of files{end}")
    for name, digest in digests.items():
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise ValueError(f"{where}: the sha256 of {name[:80]!r} is none{end}")
    if missing := next((name for name in needed if name not in digests), None):
        raise ValueError(f"{where}: {missing} has no sha256 there{end}")
    return digests
