"""A job without Kubernetes: real launchers in PID namespaces of their own; the test plays the operator."""
