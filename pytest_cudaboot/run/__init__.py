"""pytest and xdist: workers, scheduling, ledger, fixtures."""
