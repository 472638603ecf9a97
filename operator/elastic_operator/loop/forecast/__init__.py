"""Works out beside the passes what jobs would get, and where they stand in line."""
