"""Statistics over measurements and scores. A room that is kept: what judges so far needs none."""
