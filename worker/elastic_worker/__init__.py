"""What runs inside the training pods. Only `contract` is shared with the operator."""
