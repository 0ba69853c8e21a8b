"""Studies without a network: many draws at once, from named random streams."""
