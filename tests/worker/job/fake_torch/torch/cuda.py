def _is_in_bad_fork():
    return False
