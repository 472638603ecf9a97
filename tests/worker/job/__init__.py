"""A job without Kubernetes: real launchers in their own PID namespaces; the test stands for the operator."""
