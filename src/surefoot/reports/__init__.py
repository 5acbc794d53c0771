"""A run as people and programs read it: terminal, html, junit, summary. Nothing here computes a verdict."""
