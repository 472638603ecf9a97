"""Makes forecasts beside the passes: what-if answers and places in line."""
