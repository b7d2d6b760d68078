"""What turns StableHLO into running code, behind one Protocol."""
