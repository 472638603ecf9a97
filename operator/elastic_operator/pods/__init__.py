"""Reads from pods: their logs, and their launchers' status. Tenants are asked in turn, and every answer is checked.

    master_poller   the reports of the launchers of Elastic jobs
    launcher_target which pod is asked, and how often
    launcher_wire   the form of a report
    failure_logs    the ends of the logs of failed pods
    survivor_logs   whether the pods of a Torchrun job train on after the loss of a node
    fair_semaphore  turns of the tenants

Words, with the field's word in brackets where it differs:

    launcher        the first process of an Elastic pod (torchelastic: agent)
    group           the training processes of one job that train together (torchelastic: a round of the rendezvous)
    report          what a launcher says about its group, at /status
    survivors       pods that train on as a smaller group
    last lines      the end of a failed process's output (torchelastic: error file)
"""
