"""A real federation: the exchange of sealed examples, the sites' stores, and coded training."""
