"""The training processes of one pod: how they are started, watched and ended. Knows nothing of other pods."""
