"""Makes teams of quota policies, and says what a policy's status reports."""
