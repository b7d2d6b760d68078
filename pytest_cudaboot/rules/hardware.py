"""What the counters of a card say, by a table of data: nothing, evidence for the toolchain, or against the card. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cudaboot.rules.tables import Table, parse_toml, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_cudaboot.model import Json

POLICY = Path(__file__).with_name("hardware.toml")
EFFECTS = ("fatal", "rate", "info", "toolchain")
KEYS = ("effect", "at_least", "per_minute", "per_gb", "codes", "reason")
ANY = "any"
HARDWARE = "hardware"  # the key of a cell's evidence
SHORTEST = 1.0  # seconds; of a shorter time a rate says nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What one counter means.

    :param name: `family.counter`.
    :param codes: the XIDs that it is about.
    """

    name: str
    effect: str
    reason: str
    at_least: int = 1
    per_minute: float = 0.0
    per_gb: float = 0.0
    codes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What was added to a card's counters in some time.

    :param deltas: by counter, `family.counter`, with `@address` where it is a device's on the bus; none are zero.
    :param gigabytes: that have moved over its link, or null where the card does not say.
    :param xids: events, in order.
    :param lost: why nothing more can be read of the card, `lost` or `silent`, or null.
    """

    seconds: float
    deltas: Mapping[str, int] = field(default_factory=dict)
    gigabytes: float | None = None
    xids: tuple[int, ...] = ()
    lost: str | None = None

    def then(self, later: Change) -> Change:
        """Both together."""
        known = self.gigabytes is not None and later.gigabytes is not None
        return Change(
            seconds=self.seconds + later.seconds,
            deltas=Counter(self.deltas) + Counter(later.deltas),
            gigabytes=(self.gigabytes or 0.0) + (later.gigabytes or 0.0) if known else None,
            xids=self.xids + later.xids,
            lost=self.lost or later.lost,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """A counter that crossed its policy."""

    counter: str
    seen: int
    words: str
    rule: Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The table, with the hash that goes into the verdict."""

    sha256: str
    rules: Mapping[str, Rule]

    def of(self, counter: str) -> Rule:
        """The rule of a counter; its family's, if it has none of its own."""
        name = counter.partition("@")[0]
        family = f"{name.partition('.')[0]}.{ANY}"
        return self.rules.get(name) or self.rules.get(family) or _unknown(name)

    def of_xid(self, code: int) -> Rule:
        """The rule of an XID."""
        named = next((rule for rule in self.rules.values() if code in rule.codes), None)
        return named or self.of(f"xid.{code}")

    def alarms(self, change: Change) -> list[Alarm]:
        """Everything that speaks against the card."""
        return [*self._events(change), *self._counted(change)]

    def accuses_toolchain(self, change: Change) -> bool:
        """Whether what ran on the card has raised an error by itself."""
        return any(self.of_xid(code).effect == "toolchain" for code in change.xids)

    def _events(self, change: Change) -> Iterator[Alarm]:
        if change.lost is not None:
            rule = self.of(f"card.{change.lost}")
            yield Alarm(counter=rule.name, seen=1, words=f"the card is {change.lost}", rule=rule)
        for code, seen in Counter(change.xids).items():
            rule = self.of_xid(code)
            if rule.effect == "fatal":
                yield Alarm(counter=f"xid.{code}", seen=seen, words=f"XID {code}", rule=rule)

    def _counted(self, change: Change) -> Iterator[Alarm]:
        for counter, seen in change.deltas.items():
            rule = self.of(counter)
            if rule.effect == "fatal":
                yield Alarm(counter=counter, seen=seen, words=f"{counter} +{seen}", rule=rule)
            elif rule.effect == "rate" and (rate := _exceeded(rule, seen, change)):
                yield Alarm(counter=counter, seen=seen, words=f"{counter} +{seen}, {rate}", rule=rule)


def _unknown(name: str) -> Rule:
    return Rule(name=name, effect="info", reason="the table has no line for it")


def _exceeded(rule: Rule, seen: int, change: Change) -> str | None:
    """The rate in words, if it is too high."""
    per_minute = seen * 60.0 / max(change.seconds, SHORTEST)
    if seen < rule.at_least or per_minute <= rule.per_minute:
        return None
    words = f"{per_minute:.0f} a minute (at most {rule.per_minute:g})"
    if change.gigabytes is None or not rule.per_gb:
        return words
    per_gb = seen / change.gigabytes if change.gigabytes else float("inf")
    if per_gb <= rule.per_gb:
        return None
    return f"{words}, {per_gb:.3g} a GB moved (at most {rule.per_gb:g})"


def load_policy(path: Path = POLICY) -> Policy:
    """Read a policy file.

    :raises CatalogError: it is malformed; the message names file, table and key.
    """
    data = read_bytes(path)
    rules = [
        _rule(f"{path.name}: [{family}.{name}]", f"{family}.{name}", values)
        for family, names in parse_toml(data, path).items()
        for name, values in _tables(f"{path.name}: [{family}]", names)
    ]
    for code, lines in Counter(code for rule in rules for code in rule.codes).items():
        if lines > 1:
            Table(path.name, {}, ()).fail(
                "codes", f"XID {code} stands in {lines} lines; it can mean one thing"
            )
    return Policy(sha256=hashlib.sha256(data).hexdigest(), rules={rule.name: rule for rule in rules})


def _tables(where: str, names: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    if not isinstance(names, dict):
        Table(where, {}, ()).fail("counter", f"{names!r} is not a table; write [family.counter]")
    for name, values in names.items():
        if not isinstance(values, dict):
            Table(where, {}, ()).fail(name, f"{values!r} is not a table; write [family.counter]")
        yield name, values


def _rule(where: str, name: str, values: Mapping[str, object]) -> Rule:
    table = Table(where, values, KEYS)
    effect = table.choice("effect", EFFECTS)
    numbers = {
        key: _number(table, values, key) for key in ("at_least", "per_minute", "per_gb") if key in values
    }
    if numbers and effect != "rate":
        table.fail(next(iter(numbers)), f"goes with the effect 'rate', not {effect!r}")
    if effect == "rate" and "per_minute" not in numbers:
        table.fail("per_minute", "is missing: it is what makes a rate")
    return Rule(
        name=name,
        effect=effect,
        reason=table.text("reason"),
        at_least=int(numbers.get("at_least", 1)),
        per_minute=numbers.get("per_minute", 0.0),
        per_gb=numbers.get("per_gb", 0.0),
        codes=_codes(table, values.get("codes", [])),
    )


def _number(table: Table, values: Mapping[str, object], key: str) -> float:
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        table.fail(key, f"{value!r} is not a positive number")
    return float(value)


def _codes(table: Table, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(code) is int for code in value):
        table.fail("codes", f"{value!r} is not a list of numbers")
    return tuple(value)


def accused(evidence: Sequence[Json]) -> str | None:
    """Whom the hardware's evidence of a cell's tests speaks against: `card`, `toolchain`, or nobody (None)."""
    said = {card.get("against") for facts in evidence for card in facts.get(HARDWARE, {}).values()}
    return next((who for who in ("card", "toolchain") if who in said), None)
