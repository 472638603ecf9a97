"""Turns the stores into the facts that decisions are made from. Reads memory only; writes nothing."""
