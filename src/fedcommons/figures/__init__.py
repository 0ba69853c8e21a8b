"""From a results table to pictures and a page; nothing here runs anything again."""
