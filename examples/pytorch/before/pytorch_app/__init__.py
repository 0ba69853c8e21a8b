"""A convolutional network in PyTorch, trained at several sites."""
