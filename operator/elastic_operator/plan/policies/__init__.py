"""Makes teams of quota policies, and the statuses of policies."""
