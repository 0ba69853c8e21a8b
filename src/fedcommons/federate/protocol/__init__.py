"""What the parties of a federation exchange, and how it is sealed, signed and checked."""
