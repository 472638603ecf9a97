"""Tasks of their own that keep objects beside the jobs as they should be."""
