"""Flower on machines: its processes, certificates, the proxy, and a demonstration."""
