"""Records that vouch for themselves."""

import json

import pytest

from multihead.io.seal import seal, unseal


def test_a_record_comes_back_from_a_file() -> None:
    record = {"a": {10: 0.1, 9: (1, 2)}, "b": "很好", "c": None}
    back = json.loads(json.dumps(seal(record), ensure_ascii=False))
    assert unseal(back, "f", ("a", "b", "c")) == {"a": {"10": 0.1, "9": [1, 2]}, "b": "很好", "c": None}


@pytest.mark.parametrize("change", [{"a": 1.0}, {"a": True}, {"a": "1"}, {"seal": None}, {"format": 1}])
def test_equal_looking_values_are_told_apart(change: dict) -> None:
    with pytest.raises(ValueError, match=r"f: not what was written .*; fetch it"):
        unseal({**seal({"a": 1}), **change}, "f", ("a",), fix="fetch it")
