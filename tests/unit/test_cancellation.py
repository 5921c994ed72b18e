"""A request to stop: waited on, reacted to, handed down, and forgotten when the work is over."""

from __future__ import annotations

import threading

import pytest

from streams_importer.application.cancellation import CancelToken
from streams_importer.domain.errors import Cancelled
from streams_importer.ports import Cancel

PATIENCE_S = 10.0


def test_it_is_a_cancel() -> None:
    token: Cancel = CancelToken()
    assert not token.cancelled


def test_the_first_reason_stays() -> None:
    token = CancelToken()
    token.cancel("lease lost")
    token.cancel("stop")
    assert token.cancelled
    assert token.reason == "lease lost"


def test_a_sleeper_wakes_as_soon_as_it_is_cancelled() -> None:
    token = CancelToken()
    woken: list[bool] = []
    sleeper = threading.Thread(target=lambda: woken.append(token.wait(PATIENCE_S)))
    sleeper.start()
    token.cancel("stop")
    sleeper.join(PATIENCE_S)
    assert woken == [True]


def test_a_wait_that_nobody_cuts_short_says_so() -> None:
    assert CancelToken().wait(0) is False


def test_an_action_runs_once_when_cancelled() -> None:
    token, ran = CancelToken(), list[str]()
    token.on_cancel(lambda: ran.append("action"))
    assert ran == []
    token.cancel("stop")
    token.cancel("stop")
    assert ran == ["action"]


def test_an_action_given_to_a_cancelled_token_runs_at_once() -> None:
    token, ran = CancelToken(), list[str]()
    token.cancel("stop")
    forget = token.on_cancel(lambda: ran.append("action"))
    assert ran == ["action"]
    forget()


def test_an_action_taken_back_never_runs() -> None:
    token, ran = CancelToken(), list[str]()
    forget = token.on_cancel(lambda: ran.append("taken back"))
    token.on_cancel(lambda: ran.append("kept"))
    forget()
    forget()
    token.cancel("stop")
    assert ran == ["kept"]


def test_an_action_may_look_at_the_token_that_runs_it() -> None:
    token, seen = CancelToken(), list[str | None]()
    token.on_cancel(lambda: seen.append(token.reason))
    token.on_cancel(lambda: token.cancel("again"))
    token.cancel("stop")
    assert seen == ["stop"]


def test_a_parent_cancels_its_children_with_its_reason() -> None:
    parent = CancelToken()
    children = [CancelToken(parent), CancelToken(parent)]
    parent.cancel("stop")
    assert [child.reason for child in children] == ["stop", "stop"]


def test_a_child_of_a_cancelled_parent_is_cancelled_from_the_start() -> None:
    parent = CancelToken()
    parent.cancel("stop")
    assert CancelToken(parent).reason == "stop"


def test_a_child_cancels_neither_its_parent_nor_its_sisters() -> None:
    parent = CancelToken()
    one, other = CancelToken(parent), CancelToken(parent)
    one.cancel("lease lost")
    assert not parent.cancelled
    assert not other.cancelled
    parent.cancel("stop")
    assert one.reason == "lease lost"


def test_a_closed_child_is_forgotten_by_its_parent() -> None:
    parent = CancelToken()
    child = CancelToken(parent)
    child.close()
    child.close()
    CancelToken().close()
    parent.cancel("stop")
    assert not child.cancelled


def test_of_many_that_cancel_at_once_one_wins_and_every_action_runs_once() -> None:
    token, ran, start = CancelToken(), list[int](), threading.Barrier(9)
    for number in range(50):
        token.on_cancel(lambda number=number: ran.append(number))  # type: ignore[misc]

    def cancel(reason: str) -> None:
        start.wait(PATIENCE_S)
        token.cancel(reason)

    threads = [threading.Thread(target=cancel, args=[str(number)]) for number in range(8)]
    for thread in threads:
        thread.start()
    start.wait(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(ran) == list(range(50))
    assert token.reason in {str(number) for number in range(8)}


# Just before a request.


def test_a_request_may_be_sent_while_the_work_is_surely_ours() -> None:
    token = CancelToken()
    assert token.may_send() is True
    token.unsure_while(lambda: False)
    assert token.may_send() is True


def test_while_nobody_knows_whether_the_work_is_ours_the_request_waits_and_its_grant_is_void_then() -> None:
    token, answers = CancelToken(), iter([True, True, False, False])
    token.unsure_while(lambda: next(answers))
    assert token.may_send() is False, "the time for which it was granted has passed"
    assert token.may_send() is True


def test_a_cancelled_request_is_not_sent() -> None:
    token = CancelToken()
    token.cancel("stop")
    with pytest.raises(Cancelled):
        token.may_send()


def test_who_waits_to_know_whether_the_work_is_ours_is_told_by_a_cancellation() -> None:
    token, asked, ended = CancelToken(), threading.Event(), list[str]()

    def is_unsure() -> bool:
        asked.set()
        return True

    def send() -> None:
        try:
            token.may_send()
        except Cancelled:
            ended.append("cancelled")

    token.unsure_while(is_unsure)
    sender = threading.Thread(target=send)
    sender.start()
    assert asked.wait(PATIENCE_S)
    token.cancel("lease lost")
    sender.join(PATIENCE_S)
    assert ended == ["cancelled"]
