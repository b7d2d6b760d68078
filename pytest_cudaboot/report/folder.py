"""What lies in an output folder, by name. It imports nothing: each process of a run needs a name or two."""

from __future__ import annotations

VERDICT = "verdict.json"
LEDGER = "ledger.jsonl"
LOGS = "logs"
LOG_PATTERNS = ("device-*.log", "inputs-*.npz")
WORK = ".work"
LOCK = ".lock"
