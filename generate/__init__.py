"""Makes what is derived from something else in this repository: `make generated` writes all of it anew."""
