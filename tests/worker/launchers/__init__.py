"""Launch lines of third-party pages and packages, each with real launchers."""
