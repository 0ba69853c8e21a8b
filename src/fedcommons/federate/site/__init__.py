"""One site's side: its data, its store, what it sends, accepts and holds."""
