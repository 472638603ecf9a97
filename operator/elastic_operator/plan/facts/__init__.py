"""The planner's input and output as frozen dataclasses, and the rules that all packages of `plan` share.

Times are seconds since the epoch on the API server's clock, as floats.

Input:
    job             a job with its pods; `JobContext`: the facts outside the job that its plan depends on
    node            a node with its use, and whether it takes pods
    team            teams and flavors, with their quotas and rules
    foreign_pod     a foreign pod
    requirements    what pods require of a node
    pod_shape       the same, from a pod template
    job_shape       the same, from a job's spec, with its flavor
    group_report    the report of an Elastic job's master
    demand          a job as the allocation sees it
    allocation_inputs all that an allocation decides from

Output:
    decisions       assignments, grants and nominations; plans, with all kinds of writes

Rules:
    gpus            counts GPUs. Which resources count is no code: it is the setting flavors[].resources (`GpuFlavor` in
                    `settings`), for example nvidia.com/mig-1g.10gb for MIG slices
    pod_order       which of its own pods a job keeps first
    resize_cost     what a change of size costs a job
    blame           which objects cause an error
    node_outage     whether too many nodes are not Ready at once
    eviction_limits how many pods may be evicted at once, and within a minute

Times:
    waits           the back-offs and waits that a job's status keeps, and the back-off of a preemptor that could not
                    use the room; any other wait stands in its module
    times           times of statuses and conditions

Sentences:
    text            reasons, and counts and names in them
"""
