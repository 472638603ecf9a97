"""One job: what happened to it, and what is done for it. Knows no other job."""
