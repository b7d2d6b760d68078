"""The command line and its ini twins. It is all that a run without `--gpus` imports, so it imports nothing."""

from __future__ import annotations

import pytest


def add_options(parser: pytest.Parser) -> None:
    """Register every option and its ini key under one group."""
    group = parser.getgroup("cudaboot", "GPU toolchain gate")
    group.addoption(
        "--gpus",
        metavar="SEL",
        default=None,
        help="Cards to run on: all, auto, none, or a list of indexes, ranges, UUIDs, PCI ids; without it the plugin is inert",
    )
    _add(parser, group, "project", "DIR", "Checkout under test; `reference` names the built-in one")
    _add(parser, group, "catalog", "FILE", "Another catalogue than the one beside the suite")
    _add(
        parser, group, "lowerers", "LIST", "Lowerers in scope, such as xla,iree (default: all that there are)"
    )
    _add(parser, group, "tracks", "LIST", "Tracks that decide (default: toolchain,box)")
    _add(parser, group, "require", "LIST", "Conditions that must be in scope, such as gpu or net")
    _add(parser, group, "waive", "FILE", "Waivers (default: cudaboot-waivers.toml if present)")
    _add(
        parser,
        group,
        "wait",
        "SECONDS",
        "How long to wait for a leased card instead of refusing (default: 0)",
    )
    _add(parser, group, "out", "DIR", "Where verdict, ledger and logs go (default: .cudaboot)")
    parser.addini("cudaboot_document", "Bring-up document, relative to the project", default="")


def _add(parser: pytest.Parser, group: pytest.OptionGroup, name: str, metavar: str, text: str) -> None:
    group.addoption(f"--cudaboot-{name}", metavar=metavar, default=None, help=text)
    parser.addini(f"cudaboot_{name}", text, default="")
