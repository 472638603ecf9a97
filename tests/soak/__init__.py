"""Half an hour of everything at once on a real cluster: trainings, many jobs, edits and faults. `make soak`."""
