"""JSON records with a checksum of themselves, so that a single changed bit is detected.

A manifest of other files' checksums is the only file that nothing else protects. Two keys are added: `format`, and
`seal`, the SHA-256 of everything else. Keys are strict: an older record has neither of the two, and no single change
makes a sealed record look like one.
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
    """Return the SHA-256 of a record's content, independent of key order and white space."""
    # As read from a file, where numeric keys are strings and sort differently.
    plain = json.loads(json.dumps(record))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def seal(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with its format first and its checksum last."""
    content = {"format": FORMAT, **record}
    return {**content, "seal": checksum(content)}


def unseal(
    record: Mapping[str, Any], where: str, required: Collection[str], optional: Collection[str] = (), fix: str = ""
) -> dict[str, Any]:
    """Return the content of a record after checking its checksum or, for an older one, its keys.

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
        raise ValueError(f"{where}: unknown key {odd[:80]!r}: damaged, or edited{end}")
    if missing := next((name for name in required if name not in content), None):
        raise ValueError(f"{where}: {missing!r} is missing: damaged, or edited{end}")
    if stamps and not intact:
        raise ValueError(f"{where}: not what was written (its own checksum does not match): damaged, or edited{end}")
    return content


def check_digests(digests: Any, where: str, needed: Collection[str], fix: str = "") -> dict[str, str]:
    """Return a valid table of files and their SHA-256 that lists at least the `needed` files; raise ValueError
    otherwise.
    """
    end = f"; {fix}" if fix else ""
    if not isinstance(digests, dict):
        raise ValueError(f"{where}: sha256 is not a table of files{end}")
    for name, digest in digests.items():
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise ValueError(f"{where}: the sha256 of {name[:80]!r} is not valid{end}")
    if missing := next((name for name in needed if name not in digests), None):
        raise ValueError(f"{where}: {missing} has no sha256 there{end}")
    return digests
