"""Using the whole card: what is reserved, by default and on request. BOOTSTRAP.md#using-the-whole-card"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.rules.reservation import DEFAULT_FRACTION, Announcement, announcements
from pytest_cudaboot.run.evidence import Evidence

from .clients import FRACTION, RAISED, Client

PREALLOCATE = "LEAN_MLIR_PREALLOCATE"
OF_JAX = "XLA_PYTHON_CLIENT_MEM_FRACTION"
CLOSE = 1e-3  # of the driver's total: the plugin rounds to its own granules
CONTEXT = 4 << 30  # bytes: more than a process takes beside its reservation, less than any reservation
OPTIONS_LINE = re.compile(r"\[pjrt_ffi\] allocator: (\d+) create option")
FIGURE = re.compile(r"([\d.]+)GiB \((\d+) bytes\)[^#\n]*#\s*(at ([\d.]+)|unset)")


# > By default the plugin reserves 0.75 of the card's memory (as the *driver* counts it)
@pytest.mark.spec("mem.default")
def test_three_quarters_of_the_drivers_total(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client()
    made.work()

    grown = made.grown()
    evidence.measure(reserved_bytes=made.limit, driver_bytes=made.total, grown_bytes=grown)
    assert made.limit == pytest.approx(DEFAULT_FRACTION * made.total, rel=CLOSE)
    assert made.announced().bytes == made.limit
    assert grown is None or made.limit <= grown < made.limit + CONTEXT


# > because the shim then passes no create option: `[pjrt_ffi] allocator: 0 create option(s)`
@pytest.mark.spec("mem.no-options")
def test_unset_means_absent(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client()

    said = OPTIONS_LINE.search(made.text)
    evidence.measure(create_options=len(made.options))
    assert said is not None
    assert (said[1], made.options) == ("0", {})


@pytest.mark.spec("mem.unset")
def test_two_clients_without_settings_are_the_same(client: Callable[..., Client], evidence: Evidence) -> None:
    facts = [client().lowerer.facts["describe"] for _ in range(2)]

    evidence.measure(bytes_limit=facts[0]["bytes_limit"])
    assert facts[0]["bytes_limit"] == facts[1]["bytes_limit"]
    assert facts[0]["create_options"] == facts[1]["create_options"] == {}


# > The shim has variables of its own
@pytest.mark.spec("mem.shim-option")
def test_a_fraction_is_passed_on_and_kept(client: Callable[..., Client], evidence: Evidence) -> None:
    default, half = client().limit, client(**{FRACTION: "0.5"}).limit
    made = client(**{FRACTION: str(RAISED)})
    made.work()

    ratio, grown = made.limit / default, made.grown()
    evidence.measure(default_bytes=default, raised_bytes=made.limit, ratio=round(ratio, 4), grown_bytes=grown)
    assert made.options == {"memory_fraction": pytest.approx(RAISED)}
    assert ratio == pytest.approx(RAISED / DEFAULT_FRACTION, rel=CLOSE)
    assert half / default == pytest.approx(0.5 / DEFAULT_FRACTION, rel=CLOSE)
    assert made.announced().bytes == made.limit
    assert grown is None or made.limit <= grown < made.limit + CONTEXT


# > `XLA_PYTHON_CLIENT_MEM_FRACTION` has no effect here, because it is JAX's Python layer that reads it
@pytest.mark.spec("mem.xla-env")
def test_the_shims_own_variable_is_what_counts(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client(**{FRACTION: "0.5", OF_JAX: "0.3"})

    evidence.measure(reserved_bytes=made.limit)
    assert made.limit == pytest.approx(0.5 * made.total, rel=CLOSE)


@pytest.mark.spec("mem.xla-env", role="canary")
@pytest.mark.parametrize("variable", [OF_JAX, "XLA_CLIENT_MEM_FRACTION"])
def test_jaxs_variable_changes_nothing(
    client: Callable[..., Client], variable: str, evidence: Evidence
) -> None:
    unset, told = client().limit, client(**{variable: "0.3"}).limit

    evidence.measure(**{f"with_{variable}_bytes": told})
    assert told == unset


# > 0 < f <= 1, anything else is refused by name and value
@pytest.mark.spec("mem.range")
def test_a_fraction_in_range_reaches_the_plugin(client: Callable[..., Client], evidence: Evidence) -> None:
    """A plugin that knows its options by name may refuse this one; the shim has then passed it on."""
    evidence.act()
    try:
        said = client(**{FRACTION: "0.5"}).text
    except ShimError as refused:
        said = str(refused)

    assert "allocator: 1 create option(s): memory_fraction=0.5" in said


@pytest.mark.spec("mem.range", role="canary")
@pytest.mark.parametrize("value", ["0", "1.5", "7.0", "half", "0.5x", "nan", ""])
def test_a_fraction_out_of_range_is_refused(
    client: Callable[..., Client], value: str, evidence: Evidence
) -> None:
    evidence.act()
    with pytest.raises(
        ShimError, match=re.escape(f"{FRACTION}='{value}' is not a fraction f with 0 < f <= 1")
    ):
        client(**{FRACTION: value})


@pytest.mark.spec("mem.range", role="canary")
@pytest.mark.parametrize("value", ["2", "no", ""])
def test_preallocate_is_0_or_1(client: Callable[..., Client], value: str, evidence: Evidence) -> None:
    evidence.act()
    with pytest.raises(ShimError, match=re.escape(f"{PREALLOCATE}='{value}' is neither 0 nor 1")):
        client(**{PREALLOCATE: value})


# > grow with use; 0 or 1
@pytest.mark.spec("mem.preallocate")
def test_without_preallocation_it_grows_with_use(client: Callable[..., Client], evidence: Evidence) -> None:
    default = client().limit
    made = client(**{PREALLOCATE: "0"})
    made.work()

    grown = made.grown()
    evidence.measure(limit_bytes=made.limit, grown_bytes=grown)
    assert (made.limit, made.announced().up_front) == (default, False)
    assert grown is None or grown < CONTEXT


@pytest.mark.spec("mem.both")
def test_a_fraction_and_no_preallocation_go_together(
    client: Callable[..., Client], evidence: Evidence
) -> None:
    made = client(**{FRACTION: str(RAISED), PREALLOCATE: "0"})
    made.work()

    grown = made.grown()
    evidence.measure(limit_bytes=made.limit, grown_bytes=grown)
    assert made.limit == pytest.approx(RAISED * made.total, rel=CLOSE)
    assert not made.announced().up_front
    assert grown is None or grown < CONTEXT


# > The plugin's own line says what it reserved.
@pytest.mark.spec("mem.line")
def test_the_plugin_says_what_it_takes(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client()

    evidence.measure(announced_bytes=made.announced().bytes)
    assert made.announced() == Announcement(
        bytes=made.limit, device=0, allocator="BFCAllocator", up_front=True
    )


@pytest.mark.spec("mem.line", role="canary")
def test_a_log_level_hides_the_line(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client(TF_CPP_MIN_LOG_LEVEL="2")

    evidence.measure(hidden=not announcements(made.text))
    assert announcements(made.text) == []
    assert made.limit > 0


@pytest.mark.spec("mem.figures")
def test_the_documents_figures_imply_one_total(document_text: str, evidence: Evidence) -> None:
    figures = FIGURE.findall(document_text)
    totals = [int(count) / float(fraction or DEFAULT_FRACTION) for _, count, _, fraction in figures]

    evidence.measure(figures=len(figures), implied_totals_bytes=[round(total) for total in totals])
    if len(figures) < 2:
        pytest.skip("the document has no two figures of memory that could fit each other")
    assert [gib for gib, count, _, _ in figures if f"{int(count) / 2**30:.2f}" != gib] == []
    assert max(totals) == pytest.approx(min(totals), rel=CLOSE)
