"""`kubectl elastic`: what people type to submit, watch, explain and change their jobs."""
