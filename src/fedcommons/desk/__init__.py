"""What operators look at while a federation runs: a page for a browser, numbers for Prometheus."""
