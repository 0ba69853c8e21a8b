"""Federated averaging with coded weights of a small PyTorch model."""
