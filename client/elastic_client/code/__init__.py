"""Code without an image: a folder of the user's machine, as a ConfigMap that the pods of a job mount (162).

`folder` reads the folder, `objects` makes the ConfigMap and mounts it in a job, `ship` creates both in a cluster. To
the operator it is a volume like any other.
"""
