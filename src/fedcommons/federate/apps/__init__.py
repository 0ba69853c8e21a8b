"""Flower apps: a new one from the template, and running one on this machine."""
