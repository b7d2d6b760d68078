"""The acceptance suite and its fixtures, as a wheel carries them. A clone keeps both at its top level."""
