"""Speech datasets: where the recordings are and what is said in them. No recording is opened here.

CSV or TSV with a header and JSONL (`audio_filepath` and `text`, or their usual other names), a LibriSpeech folder
(`*.trans.txt` beside the recordings), and a folder of spoken digits (`7_jackson_0.wav`, as fsdd has it).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multihead.audio.decode import AudioError

AUDIO_COLUMNS = ("audio_filepath", "audio", "path", "file", "filename", "wav")
TEXT_COLUMNS = ("text", "transcript", "transcription", "sentence")
SPEAKER_COLUMNS = ("speaker", "speaker_id", "client_id")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGIT_NAME = re.compile(r"([0-9])_([^_]+)_([0-9]+)\.(?:wav|flac|ogg|mp3)")
SUFFIXES = (".flac", ".wav", ".ogg", ".mp3")
LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class SpeechItem:
    """One utterance. place: file and line that named it; start and stop: seconds of a part of the recording."""

    audio: Path
    text: str
    place: str
    speaker: str | None = None
    take: int | None = None
    start: float | None = None
    stop: float | None = None


def read_speech(path: str | Path, faults: list[str] | None = None) -> Iterator[SpeechItem]:
    """Yield the utterances of a manifest or a folder, in its order.

    faults: rows that cannot be used are appended here, each with its place, and skipped; None: the first one raises
    AudioError. The files that rows name must exist; whether they can be decoded is seen when they are read.
    """
    path = Path(path)
    rows: Iterator[SpeechItem | str]
    if path.is_dir():
        rows = _read_folder(path)
    elif not path.exists():
        raise AudioError(f"{path}: no such file or folder; check the path")
    elif path.suffix.lower() in (".jsonl", ".json", ".ndjson"):
        rows = _read_jsonl(path)
    elif path.suffix.lower() in (".csv", ".tsv"):
        rows = _read_csv(path)
    else:
        raise AudioError(f"{path}: speech is read from .csv, .tsv, .jsonl or a folder; rename or convert it")
    count = 0
    for row in rows:
        if isinstance(row, SpeechItem) and not row.audio.is_file():
            row = f"{row.place}: {row.audio}: no such recording; check the path"
        if isinstance(row, str):
            if faults is None:
                raise AudioError(row)
            faults.append(row)
            continue
        count += 1
        yield row
    if not count and not faults:
        raise AudioError(f"{path}: names no recording; give a manifest with rows, or a folder with recordings")


def _read_jsonl(path: Path) -> Iterator[SpeechItem | str]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            place = f"{path}:{number}"
            if len(line) > LONGEST_LINE:
                raise AudioError(f"{place}: a line of more than {LONGEST_LINE:,} bytes; a manifest holds paths")
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                yield f"{place}: not JSON ({error}); mend the line"
                continue
            yield _item(row, place, path.parent) if isinstance(row, dict) else f"{place}: no JSON object; write {{…}}"


def _read_csv(path: Path) -> Iterator[SpeechItem | str]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter=delimiter, strict=True)
        try:
            header = [name or "" for name in rows.fieldnames or ()]
            for columns in (AUDIO_COLUMNS, TEXT_COLUMNS):
                if not {*columns} & {*header}:
                    raise AudioError(f"{path}:1: no column {' or '.join(columns)}; the first line names the columns")
            for row in rows:
                place = f"{path}:{rows.line_num}"
                if None in row or None in row.values():
                    yield f"{place}: not as many fields as the header has; mend the line"
                else:
                    yield _item(row, place, path.parent)
        except csv.Error as error:
            raise AudioError(f"{path}:{rows.line_num}: not CSV ({error}); mend the line") from None
        except UnicodeDecodeError as error:
            raise AudioError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from None


def _item(row: Mapping[str, Any], place: str, folder: Path) -> SpeechItem | str:
    audio = next((row[name] for name in AUDIO_COLUMNS if name in row), None)
    text = next((row[name] for name in TEXT_COLUMNS if name in row), None)
    if not isinstance(audio, str) or not audio or "\0" in audio:
        return f"{place}: no path of a recording; write it as audio_filepath"
    if not isinstance(text, str):
        return f"{place}: no text; write what is said as text"
    speaker = next((str(row[name]) for name in SPEAKER_COLUMNS if row.get(name)), None)
    try:
        start = float(row["offset"]) if row.get("offset") else None
        stop = (start or 0.0) + float(row["duration"]) if start is not None and row.get("duration") else None
    except (TypeError, ValueError):
        return f"{place}: offset and duration are seconds, in numbers; mend them"
    return SpeechItem(folder / Path(audio).expanduser(), text, place, speaker, start=start, stop=stop)


def _read_folder(folder: Path) -> Iterator[SpeechItem | str]:
    transcripts = sorted(folder.rglob("*.trans.txt"))
    if transcripts:
        for transcript in transcripts:
            yield from _read_transcript(transcript)
        return
    names = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    for path in names:
        match = DIGIT_NAME.fullmatch(path.name)
        if match is None:
            yield f"{path}: no transcript; name it digit_speaker_take.wav, or give a manifest"
        else:
            yield SpeechItem(path, DIGITS[int(match[1])], str(path), match[2], int(match[3]))


def _read_transcript(path: Path) -> Iterator[SpeechItem | str]:
    """LibriSpeech: `84-121123-0000 GO DO YOU HEAR`, beside 84-121123-0000.flac."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        yield f"{path}: byte {error.start} is not UTF-8; save it as UTF-8"
        return
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, _, text = line.strip().partition(" ")
        place = f"{path}:{number}"
        if "/" in name or "\\" in name or not text:
            yield f"{place}: no name and text, divided by a space; mend the line"
            continue
        audio = next(
            (path.parent / f"{name}{end}" for end in SUFFIXES if (path.parent / f"{name}{end}").exists()), None
        )
        speaker = name.split("-")[0]
        yield SpeechItem(audio or path.parent / f"{name}.flac", text, place, speaker)
