"""Secrets are stored as ciphertext that only this server's keys can read."""

import traceback

import pytest

from sessions_app import encryption
from sessions_app.exceptions import UnreadableSecret


def test_a_secret_is_read_again_and_its_ciphertext_does_not_contain_it() -> None:
    secret = "sk-ünïcode-12345678"
    written = encryption.encrypt(secret, "connection")
    assert "12345678" not in written
    assert written.isascii()
    assert encryption.decrypt(written, "connection") == secret
    assert encryption.encrypt(secret, "connection") != written


def test_no_secret_is_no_ciphertext() -> None:
    assert encryption.encrypt("", "connection") == encryption.decrypt("", "connection") == ""


def test_a_ciphertext_of_another_purpose_cannot_be_read() -> None:
    with pytest.raises(UnreadableSecret):
        encryption.decrypt(encryption.encrypt("123:bot", "telegram"), "connection")


@pytest.mark.parametrize("damage", ["x", "gA", "gAAAAA", "zzzz"])
def test_a_damaged_ciphertext_is_refused_without_showing_it(damage: str) -> None:
    written = damage + encryption.encrypt("sk-1234567", "connection")
    with pytest.raises(UnreadableSecret, match="enter it again") as raised:
        encryption.decrypt(written, "connection")
    shown = "".join(traceback.format_exception(raised.value))
    assert written not in shown
    assert "sk-1234567" not in shown
    assert raised.value.__cause__ is None
