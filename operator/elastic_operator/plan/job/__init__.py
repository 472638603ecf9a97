"""Decides about one job: what has happened to it, what it asks for, and what is done for it. It knows no other job."""
