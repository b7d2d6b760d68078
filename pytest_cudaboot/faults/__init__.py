"""Faults on purpose, by a seed: what the gate's promises are tried with. Inert unless its plugin is named and given a schedule."""
