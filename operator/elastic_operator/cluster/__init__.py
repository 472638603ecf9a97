"""The code that talks to Kubernetes. Only kopf has a session of its own (`kopf_host`).

Requests:
    session         one HTTP session; fences the writes
    write_queue     how many writes are in flight, and which one is next
    api_requests    each kind of request; those about pods are in pod_requests
    errors          an exception for each kind of refusal, and whether to try again
    backoff         waits between failed tries of one task
    rate_limit      how much work tenants may cause
    connection, sockets, clock      the address and the credentials; connections; the API server's time
    events          events on jobs
What the API server has:
    stores, store   the known objects of each kind
    reflector, lists, wire      lists and watches keep a store equal to the API server
    objects, pod, meta, interned    the fields of objects that are read; equal parts are kept once
    pruned_fields   fields of statuses that the API server drops
Which process leads:
    lease, own_loop     the lease among replicas, renewed in a thread of its own
    installation    one installation in a cluster
    metrics_access  the accounts that may read metrics
    waiting         waits with a time limit, and for the ends of tasks
"""
