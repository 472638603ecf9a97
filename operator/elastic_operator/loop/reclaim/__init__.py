"""What happens before a job lets pods go for others: it is asked, nominated, limited, measured and told."""
