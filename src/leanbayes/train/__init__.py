"""Training: one loop, its settings, and what keeps it alive."""
