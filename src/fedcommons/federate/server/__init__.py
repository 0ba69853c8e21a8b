"""The server's side: who is there, the exchange, the rounds, and what it keeps on disk."""
