"""What happens beside the steps: one file per callback, switched on by name in ``conf/callbacks`` and ``conf/logger``.

``measure`` callbacks add to the metrics of a step, ``log`` callbacks carry metrics somewhere; all may do both.
"""
