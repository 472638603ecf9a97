"""From the stores to the facts that decisions are made from. Reads memory, writes nothing."""
