"""Tags in every notation: written from BIO they read back as the same BIO, and are known by what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.data.readers.notation import NOTATIONS, TagNotation, are_bio, choose_notation
from multihead.data.readers.tag_schemes import TagCounts, to_bio

SCHEMES = {"BIIB": "BIO", "IIII": "IOB1", "BILU": "BILOU", "BIES": "BILOU", "BMES": "BMES", "BMEW": "BMES"}


@st.composite
def bio_tags(draw: st.DrawFn) -> list[str]:
    tags: list[str] = []
    for kind, length in draw(st.lists(st.tuples(st.sampled_from(["", "PER", "LOC"]), st.integers(1, 3)), max_size=6)):
        tags += ["O"] * length if not kind else [f"B-{kind}", *[f"I-{kind}"] * (length - 1)]
    return tags


@given(bio_tags(), st.sampled_from(NOTATIONS))
def test_tags_read_back_as_they_were(tags: list[str], letters: str) -> None:
    written = TagNotation(letters).write(tags)
    assert to_bio(written, SCHEMES[letters]) == (tags, [], None)


@pytest.mark.parametrize(
    ("letters", "want"),
    [
        ("BIIB", "B-A I-A I-A B-A O B-B I-B"),
        ("IIII", "I-A I-A I-A B-A O I-B I-B"),
        ("BILU", "B-A I-A L-A U-A O B-B L-B"),
        ("BIES", "B-A I-A E-A S-A O B-B E-B"),
        ("BMES", "B-A M-A E-A S-A O B-B E-B"),
        ("BMEW", "B-A M-A E-A W-A O B-B E-B"),
    ],
)
def test_notations(letters: str, want: str) -> None:
    written = TagNotation(letters).write(["B-A", "I-A", "I-A", "B-A", "O", "B-B", "I-B"])
    assert written == want.split()
    survey = TagCounts()
    survey.add(enumerate(written))
    assert choose_notation(survey) == letters


def test_tags_without_types_and_others_stay_what_they_are() -> None:
    assert TagNotation("BMES").write(["B", "I", "B"]) == ["B", "E", "S"]
    assert TagNotation("BMES").write(["O", "I-X", "NOUN"]) == ["O", "S-X", "NOUN"]
    assert are_bio(["O", "B-X", "B", "I"])
    assert not are_bio(["O", "NOUN"])
    with pytest.raises(ValueError, match=r"unknown notation 'BXYZ'"):
        TagNotation("BXYZ")


def test_what_tags_do_not_tell_the_training_data_does() -> None:
    survey = TagCounts()
    assert choose_notation(survey, "BMES") == "BMES"
    survey.add(enumerate(["B-X", "E-X", "S-X"]))  # BIES or BMES?
    assert [choose_notation(survey, default) for default in ("BMES", "BIES", "BIIB")] == ["BMES", "BIES", "BIES"]
    survey.add(enumerate(["B-X", "O"] * 4))
    assert choose_notation(survey, "BMES") == "BIIB"
