"""What happens before a job lets pods go for others: dry runs, nominations, limits, measurements and reports."""
