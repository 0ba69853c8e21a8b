"""Backups: a site's store or a server's state-dir as one file, and back."""
