"""What comes from outside reaches a terminal or a log as one harmless line."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.text import plain

HOSTILE = st.text(st.characters(codec=None) | st.sampled_from("\x00\x07\x1b\r\n\t\x7f\x9b\u2028\u202e\u2066\u200f\ud800"))


@pytest.mark.parametrize("text", ["", "plain", "Zürich – Łódź", "東京", "🔌 80 kW", "a b  c", "[/]", "100 %"])
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines", "two lines"),
        ("two\r\nlines", "two lines"),
        ("tab\tstop", "tab stop"),
        ("nul\x00byte", "nul byte"),
        ("bell\x07", "bell"),
        ("\x1b[2Jwiped", "[2Jwiped"),
        ("\x1b]0;title\x07", "]0;title"),
        ("\x9b31mred", "31mred"),
        ("del\x7fete", "del ete"),
        ("next\x85line", "next line"),
        ("line\u2028separator\u2029", "line separator"),
        ("\ud800lone\udfff", "lone"),
    ],
)
def test_control_characters_escapes_and_lone_surrogates_become_blanks(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize("mark", "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_direction_overrides_cannot_turn_a_line_around(mark: str) -> None:
    assert plain(f"abc{mark}def") == "abc def"


@pytest.mark.parametrize("mark", "\u200e\u200f\u061c")
def test_direction_marks_are_taken_out_too(mark: str) -> None:
    assert mark not in plain(f"abc{mark}def")


@given(HOSTILE, st.integers(1, 50))
def test_whatever_comes_it_is_one_printable_line_of_bounded_length(text: str, most: int) -> None:
    shown = plain(text, most)
    assert len(shown) <= most
    assert len(shown.splitlines()) <= 1
    assert shown == shown.strip()
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown)
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in shown)
    shown.encode()


@given(HOSTILE)
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert plain(plain(text)) == plain(text)


def test_long_text_is_cut_and_says_so() -> None:
    assert plain("x" * 500) == "x" * 500
    assert plain("x" * 501) == "x" * 499 + "…"
    assert plain("abcdef", 4) == "abc…"
    assert len(plain("x" * 10_000_000)) == 500
