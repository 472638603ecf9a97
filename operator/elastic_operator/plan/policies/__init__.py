"""From quota policies to teams, and what the status of a policy says."""
