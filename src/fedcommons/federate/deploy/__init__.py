"""A real Flower deployment: its processes, its certificates, the proxy, and a demo."""
