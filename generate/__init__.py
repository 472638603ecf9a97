"""Makes all derived files of this repository: `make generated` writes them again."""
