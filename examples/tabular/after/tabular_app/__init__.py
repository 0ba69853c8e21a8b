"""A network for tables in PyTorch, trained at several sites."""
