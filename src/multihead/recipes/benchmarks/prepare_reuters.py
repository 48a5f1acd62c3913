"""Prepare Reuters-21578, which cannot be redistributed, for benchmarks/reuters.toml and denoise.toml.

python -m multihead.recipes.benchmarks.prepare_reuters FOLDER OUT writes OUT/{train,test}.jsonl (headline from body, by
Lewis' split), OUT/bodies.txt (bodies of all other stories, a line each, for pre-training) and OUT/abstracts.txt (those
of SciTLDR's training papers, which are bundled).
"""

from __future__ import annotations

import gzip
import html
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from multihead.recipes import recipe

STORY = re.compile(r'<REUTERS[^>]*LEWISSPLIT="(\w[\w-]*)"[^>]*>(.*?)</REUTERS>', re.DOTALL)
PARTS = {"title": re.compile(r"<TITLE>(.*?)</TITLE>", re.DOTALL), "body": re.compile(r"<BODY>(.*?)</BODY>", re.DOTALL)}
SIGN_OFF = re.compile(r"\s*(reuter|reuters)\s*(\x03|&#3;)?\s*$", re.IGNORECASE)


def stories(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield split, headline and body of every story that has both."""
    for file in sorted(folder.glob("*.sgm")):
        for story in STORY.finditer(file.read_text(encoding="latin-1")):
            texts = {name: part.search(story[2]) for name, part in PARTS.items()}
            title, body = (clean_text(text[1]) if text else "" for text in texts.values())
            if title and len(body.split()) >= 10:  # a few bodies are "blah blah blah", or a few words
                yield story[1], title, body


def clean_text(text: str) -> str:
    """Remove entities, control characters, line breaks and the sign-off at the end."""
    text = html.unescape(html.unescape(text))
    text = re.sub(r"[\x00-\x1f\s]+", " ", text)
    return SIGN_OFF.sub("", text).strip()


def main(folder: str, out: str) -> None:
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    sides = {"TRAIN": "train", "TEST": "test"}
    rows: dict[str, list[str]] = {"train": [], "test": []}
    bodies = []
    for split, title, body in stories(Path(folder)):
        if split in sides:
            rows[sides[split]].append(json.dumps({"source": body, "target": title}, ensure_ascii=False))
        if split != "TEST":
            bodies.append(body)
    for side, lines in rows.items():
        (target / f"{side}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    papers = gzip.decompress((recipe("scitldr") / "train.jsonl.gz").read_bytes()).decode().split("\n")
    abstracts = [" ".join(" ".join(json.loads(paper)["source"]).split()) for paper in papers if paper]
    for name, texts in (("bodies", bodies), ("abstracts", abstracts)):
        (target / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
