"""Launch lines of other people's pages and packages, each with real launchers."""
