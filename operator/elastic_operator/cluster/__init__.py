"""The only code that talks to Kubernetes: stores, conditional writes, the lease."""
