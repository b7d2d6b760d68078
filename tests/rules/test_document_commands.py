"""What a documented command needs, by its words alone."""

from __future__ import annotations

import pytest

from pytest_cudaboot.rules.document_commands import classify


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        ("gcc -O2 a.c -o a  # the shim", "runs here"),
        ("nm a.so | grep x", "runs here"),
        ("python3 -m venv .venv && . .venv/bin/activate", "runs here"),
        ("CUDA_VISIBLE_DEVICES=0 ./trainer linear data", "trains"),
        (".lake/build/bin/trainer data", "trains"),
        ("pip install jax-cuda12-pjrt", "needs the net"),
        ("git pull  # the latest", "needs the net"),
        ("lake build Proofs", "needs lean"),
        ("sudo make install", "changes the system"),
        ("echo x > /etc/motd", "changes the system"),
        ("apt-get install gcc", "changes the system"),
        ("export A=b", "sets variables"),
        ("MY_RATE=0.97   # a share", "sets variables"),
        ("source .venv/bin/activate", "sets variables"),
        ("frobnicate", "unknown"),
    ],
)
def test_a_command_is_told_by_its_program(command: str, needs: str) -> None:
    assert classify(command) == needs


def test_no_line_that_changes_the_machine_is_taken_for_harmless() -> None:
    assert classify("gcc a.c && sudo cp a /usr/bin") == "changes the system"
