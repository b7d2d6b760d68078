"""What the controller tells a worker to do, in plain data that stands in the place of an item, and what the worker does.

An instruction is the item's index; or that with the cards of a gang; or both with the number of a question. A
token is an integer that names an instruction, as it is waited for and as its end is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_cudaboot.run.seams import Device, Question

Instruction = int | Sequence[Any]

LEAVE = -1  # leave your card to a gang, and say so as if it were an item that has ended
AGAIN = -2  # and below: the questions, from the first one on


def to_run(index: int, lanes: Sequence[str]) -> Instruction:
    """Run an item, on the worker's own card or as the lead of a gang."""
    return index if len(lanes) == 1 else (index, list(lanes))


def to_run_again(question: Question) -> Instruction:
    """Run an item again, on the worker's own card or as the lead of a gang."""
    lanes = question.lanes if len(question.lanes) > 1 else ()
    return (question.index, list(lanes), question.number)


def token_of(instruction: Instruction) -> int:
    """How an instruction is named."""
    index, _, number = _parts(instruction)
    return index if number is None else AGAIN - number


def carry_out(instruction: Instruction, session: pytest.Session, device: Device) -> None:
    """Do it, and be done with it: the cards of a gang are left before it is told that its item has ended."""
    index, cards, number = _parts(instruction)
    if index == LEAVE:
        device.leave()
    elif number is not None:
        device.hold(cards)
        device.again(session.items[index], session, number)
        device.hold(())
    else:
        device.hold(cards)
        session.config.hook.pytest_runtest_protocol(item=session.items[index], nextitem=session)
        device.hold(())


def _parts(instruction: Instruction) -> tuple[int, Sequence[str], int | None]:
    """Index, cards, and number of the question, if it is one."""
    if isinstance(instruction, int):
        return instruction, (), None
    index, cards, *number = instruction
    return index, cards, number[0] if number else None
