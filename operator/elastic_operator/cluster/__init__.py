"""The only code that talks to Kubernetes: what is there (stores, ledger), what to do (apply), who may (lease)."""
