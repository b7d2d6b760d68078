"""Questions between panel and sender: which tests are run again, and which of them wait for cards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pytest_cudaboot.run.instructions import AGAIN
from pytest_cudaboot.run.seams import Panel, Question


class Asking:
    """A question is named by its token where workers speak of it, and goes when its partners have left their cards.

    :param cards: all cards that have a worker or will.
    :param send: sends a question to its worker, if that lives.
    """

    def __init__(
        self, panel: Panel, cards: Callable[[], Collection[str]], send: Callable[[Question], bool]
    ) -> None:
        self._panel = panel
        self._cards = cards
        self._send = send
        self._waiting: dict[int, tuple[Question, set[str]]] = {}  # with who has yet to leave a card
        self._orphaned: set[int] = set()  # of these, whose own worker is gone

    def ask(self, ready: Mapping[str, str], clear: Callable[[str], None]) -> None:
        """Have what goes now sent, or the cards of others left to it first.

        :param ready: idle lanes and their workers.
        :param clear: has a lane's worker leave its card.
        """
        for question in self._panel.ask(ready, self._cards()):
            self._waiting[question.number] = question, set(question.lanes[1:])
            for name in question.lanes[1:]:
                clear(name)
        self._go()

    def left(self, name: str) -> None:
        """A card has been left by its worker, or its worker is gone."""
        for _, leaving in self._waiting.values():
            leaving.discard(name)
        self._go()

    def gone(self, name: str) -> None:
        """A worker has died: its replacement on the card is not the one that was asked."""
        self._orphaned.update(number for number, (one, _) in self._waiting.items() if one.lane == name)

    def _go(self) -> None:
        for number, (question, leaving) in list(self._waiting.items()):
            if not leaving:
                del self._waiting[number]
                if number in self._orphaned or not self._send(question):
                    self._panel.unsent(number, self._cards())

    def answered(self, token: int) -> dict[str, str]:
        """A test has been run again; the cards that were set aside meanwhile, and why."""
        aside = self._panel.answered(AGAIN - token, self._cards())
        return {lane: f"{lane} is set aside: {why}" for lane, why in aside.items()}

    def lost(self, token: int) -> None:
        """Its worker died of it."""
        self._panel.lost(AGAIN - token, self._cards())
