"""Federated averaging of a small PyTorch model."""
