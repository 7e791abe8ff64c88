"""Diffusion training from latents that were encoded once.

::

    metadata.json -> shards -> items --_group_by_bucket--> buckets of one shape
        --SequentialBucketSampler--> lists of indices, the same number for every rank
        --dataset[i]--> checked samples --collate--> one batch --LatentDataloader--> trainer

Every file of a cache lies inside its directory and is read with ``torch.load(weights_only=True)``.
"""
