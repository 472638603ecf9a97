"""Code without an image: a folder of the user's machine, as a ConfigMap that the pods of a job mount (162).

`folder` reads the folder, `objects` makes the ConfigMap and puts it into a job, `ship` creates both in a cluster. The
operator does not know about this: it sees a volume like any other.
"""
