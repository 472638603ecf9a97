"""Tasks that run beside the passes and keep objects beside the jobs as they should be."""
