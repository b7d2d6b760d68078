"""What the outside says, one outside thing a module. Nothing here decides."""
