"""Forecasts: places in line, what-if answers, estimated starts (160, 161)."""
