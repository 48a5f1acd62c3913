import hashlib

from multihead.recipes import shakespeare


def test_shakespeare_is_the_known_text() -> None:
    text = shakespeare()
    assert len(text) == 1_115_394
    assert len(set(text)) == 65
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.\n")
    assert hashlib.sha256(text.encode()).hexdigest().startswith("86c4e6aa9db7c042")
