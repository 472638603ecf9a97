"""The administrator's tools: the operator's own decisions, made from files instead of a cluster.

All tools:
    commands        a command begins here: its arguments, and the call of its module
    files           reads and writes files, and names each mistake in them
    table           text in columns

The commands `share`, `snapshot`, `replay` and `simulate`:
    share           fair shares of amounts in a file
    live            a snapshot of a running cluster
    replay          all decisions of a snapshot
    simulate        which jobs would start, grow, shrink or stop after changes
    manifests       the changes, read from manifests
    apply_changes   the snapshot after the changes
    decisions       decides a whole pass from a snapshot

Snapshots:
    cluster_snapshot the inputs of one pass
    snapshot_file   the same as JSON
    snapshot_view   the same as the planner reads it
"""
