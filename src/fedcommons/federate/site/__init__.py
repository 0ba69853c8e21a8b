"""A site's side of the federation: its data and store, and what it sends, accepts and holds."""
