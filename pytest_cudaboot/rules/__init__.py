"""Pure logic: plain data comes in, a decision goes out. Nothing here touches the box, pytest or a clock."""
