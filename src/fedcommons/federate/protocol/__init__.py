"""What the parties of a federation say to each other, and how it is sealed, signed and checked."""
