"""Two ends that prove to each other that they are of one job; neither learns the secret, nor does who listens."""

from __future__ import annotations

from typing import Any

import pytest
from trimtab.transport.rendezvous import handshake
from trimtab.transport.rendezvous.handshake import AuthenticationError

SECRET, OTHER = b"the job's own secret", b"another job's"


def talk(caller: Any, called: Any) -> tuple[Any, Any, bytes]:
    """Run both ends to the end; what each returned, and every byte that crossed."""
    ends, inbox, results = [caller, called], [bytearray(), bytearray()], [None, None]
    waiting: list[Any] = [next(end) for end in ends]
    heard = b""
    while waiting != [None, None]:
        moved = False
        for side, end in enumerate(ends):
            step = waiting[side]
            try:
                if isinstance(step, bytes):
                    inbox[1 - side] += step
                    heard += step
                    waiting[side] = next(end)
                elif step is not None and len(inbox[side]) >= step:
                    message, inbox[side] = bytes(inbox[side][:step]), inbox[side][step:]
                    waiting[side] = end.send(message)
                else:
                    continue
            except StopIteration as ended:
                results[side], waiting[side] = ended.value, None
            moved = True
        assert moved, "both wait for each other"
    return results[0], results[1], heard


def test_two_ends_of_one_job_know_each_other_and_share_a_key() -> None:
    key, (rank, same), heard = talk(handshake.call(SECRET, b"p", 3), handshake.answer(SECRET, b"p"))
    assert (rank, same) == (3, key)
    assert SECRET not in heard
    assert key not in heard


def test_every_connection_has_a_key_of_its_own() -> None:
    keys = {talk(handshake.call(SECRET, b"p", 3), handshake.answer(SECRET, b"p"))[0] for _ in range(3)}
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("caller", "called"),
    [
        (handshake.call(SECRET, b"p", 1), handshake.answer(OTHER, b"p")),
        (handshake.call(SECRET, b"this attempt", 1), handshake.answer(SECRET, b"the one before")),
    ],
)
def test_the_one_who_calls_finds_out_that_the_other_is_of_another_job_or_attempt(caller: Any, called: Any) -> None:
    with pytest.raises(AuthenticationError):
        talk(caller, called)


def test_the_one_who_is_called_finds_out_too() -> None:
    """By a caller who does not mind whom it talks to."""

    def careless() -> Any:
        yield handshake._GREETING.pack(b"trimtab1", 1, bytes(32))
        yield 64
        yield bytes(32)

    with pytest.raises(AuthenticationError):
        talk(careless(), handshake.answer(SECRET, b"p"))


def test_what_was_said_once_is_of_no_use_again() -> None:
    _, _, heard = talk(handshake.call(SECRET, b"p", 1), handshake.answer(SECRET, b"p"))
    greeting, proof = heard[:44], heard[-32:]

    def replaying() -> Any:
        yield greeting
        yield 64
        yield proof

    with pytest.raises(AuthenticationError):
        talk(replaying(), handshake.answer(SECRET, b"p"))


def test_a_proof_cannot_be_had_by_sending_the_question_back() -> None:
    """An end that answers calls may not serve to answer its own."""
    calling = handshake.call(SECRET, b"p", 1)
    greeting = next(calling)
    answering = handshake.answer(SECRET, b"p")
    next(answering)
    number_and_proof = answering.send(greeting)
    next(calling)
    final = calling.send(number_and_proof)
    assert final != number_and_proof[32:], "one proof for both directions could be sent back"


def sealed(data: Any) -> Any:
    yield handshake.seal(b"key", b"p", data)


def test_a_sealed_message_arrives_as_it_was() -> None:
    data = {"host": "10.0.0.1", "port": 4711}
    assert talk(sealed(data), handshake.unseal(b"key", b"p"))[1] == data


@pytest.mark.parametrize(("key", "purpose"), [(b"another", b"p"), (b"key", b"another")])
def test_a_message_of_another_key_or_purpose_is_refused(key: bytes, purpose: bytes) -> None:
    with pytest.raises(AuthenticationError):
        talk(sealed({}), handshake.unseal(key, purpose))


def test_a_message_that_was_changed_is_refused() -> None:
    def changed() -> Any:
        message = handshake.seal(b"key", b"p", {"port": 1})
        yield message.replace(b"1}", b"2}")

    with pytest.raises(AuthenticationError):
        talk(changed(), handshake.unseal(b"key", b"p"))


def test_nobody_can_have_us_wait_for_gigabytes() -> None:
    def boasting() -> Any:
        yield b"\xff\xff\xff\xff"

    with pytest.raises(AuthenticationError):
        talk(boasting(), handshake.unseal(b"key", b"p"))
