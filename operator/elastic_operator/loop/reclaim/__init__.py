"""The steps before a job releases pods for others: dry runs, nominations, limits, measurements and reports."""
